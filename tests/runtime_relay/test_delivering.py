"""Callbacks go out, in order, again if they must, and to the dead letters in the end."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.outbox import Delivery
from tenure.model.retry_policy import RetryPolicy
from tenure.model.status import DeliveryState
from tenure.ports.callbacks import NotTaken, Outbox
from tenure.runtime.options import RelayTiming
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create, record_of
from tests.runtime_relay.conftest import NewRelay
from tests.runtime_relay.senders import (
    BUSY,
    GONE,
    Postman,
    busy_run,
    one_after_another,
    target,
)

EVERYTHING = target(events=("run", "step", "host"))
AT_ONCE = RetryPolicy(attempts=100)


async def only_delivery(store: Outbox) -> Delivery:
    (delivery,) = (await store.list_deliveries()).items
    return delivery


class TestOrder:
    async def test_it_is_kept_through_failures(self, store: Any, new_relay: NewRelay) -> None:
        """Every third attempt fails; what failed goes out again before anything behind it."""
        run = await busy_run(store, EVERYTHING)
        attempts = count()
        postman = Postman(hook=lambda _: BUSY if next(attempts) % 3 == 0 else None)
        assert await new_relay(store, postman, policy=AT_ONCE).flush(10)
        places = postman.places(run.run_id)
        assert places == sorted(places)
        assert len(set(places)) == 50 < len(places)
        assert postman.most_per_run_and_target == 1

    async def test_failing_target_holds_back_neither_other_targets_nor_other_runs(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        run = await busy_run(store, EVERYTHING, target(1, "other"))
        another = await busy_run(store, target(2, "other"))
        postman = Postman(hook=lambda _: BUSY)
        assert await new_relay(store, postman).flush(10)
        assert postman.places(run.run_id) == [(1, 0)]
        for each in (run, another):
            assert len(postman.places(each.run_id, "other")) == 2

    async def test_many_runs_to_one_receiver_share_its_places(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        for _ in range(60):
            await create(store, callbacks=(target(),))
        postman = Postman()
        assert await new_relay(store, postman, concurrency=20, per_target=4).flush(10)
        assert len(set(postman.ids)) == len(postman.ids) == 60
        assert postman.most["https://receiver-0.example:443"] == 4


class TestNews:
    async def test_hint_is_enough(self, store: Any, new_relay: NewRelay) -> None:
        postman = Postman()
        relay = new_relay(store, postman)
        assert await relay.flush(5)
        await create(store, callbacks=(target(),))
        relay.wake()
        await postman.carries(1)

    async def test_what_nobody_hinted_at_is_found(self, store: Any, new_relay: NewRelay) -> None:
        postman = Postman()
        relay = new_relay(store, postman, timing=RelayTiming(poll=0.01))
        assert await relay.flush(5)
        await create(store, callbacks=(target(),))
        await postman.carries(1)


class TestRetries:
    async def test_waits_follow_the_policy(
        self, store: Any, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        await create(store, callbacks=(target(),))
        postman = Postman(hook=one_after_another(BUSY, BUSY))
        relay = new_relay(store, postman)
        for attempts, wait in ((1, 5), (2, 20)):
            assert await relay.flush(5)
            waiting = await only_delivery(store)
            assert (waiting.state, waiting.attempts) == (DeliveryState.WAITING, attempts)
            assert waiting.last_error == BUSY.error
            assert waiting.due_at == clock.now() + timedelta(seconds=wait)
            clock.advance(wait - 0.001)
            assert await relay.flush(5)
            assert len(postman.sent) == attempts
            clock.advance(0.001)
        assert await relay.flush(5)
        done = await only_delivery(store)
        assert (done.state, done.attempts) == (DeliveryState.DELIVERED, 3)
        assert len(set(postman.ids)) == 1

    async def test_target_may_ask_for_more_time(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        relay = new_relay(memory, Postman(hook=lambda _: replace(BUSY, not_before=90.0)))
        assert await relay.flush(5)
        assert (await only_delivery(memory)).due_at == clock.now() + timedelta(seconds=90)

    async def test_sender_that_breaks_is_tried_again(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        relay = new_relay(memory, Postman(hook=one_after_another(RuntimeError("bug"))))
        assert await relay.flush(5)
        assert (await only_delivery(memory)).last_error == "the sender failed: RuntimeError"
        clock.advance(5)
        assert await relay.flush(5)
        assert (await only_delivery(memory)).state == DeliveryState.DELIVERED


class TestDeadLetters:
    async def test_after_the_last_attempt(
        self,
        store: Any,
        clock: ManualClock,
        new_relay: NewRelay,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        run = await busy_run(store, target())
        relay = new_relay(store, Postman(hook=lambda one: BUSY if one.event.version == 1 else None))
        for wait in (5, 20, 0):
            assert await relay.flush(5)
            clock.advance(wait)
        success, dead = (await store.list_deliveries()).items
        assert (dead.state, dead.attempts, dead.last_error) == (DeliveryState.DEAD, 3, BUSY.error)
        assert success.state == DeliveryState.DELIVERED
        now = await store.get_run(run.run_id)
        assert now.callback_error is not None
        assert (now.callback_error.event, now.callback_error.attempts) == ("run.running", 3)
        assert record_of(replace(now, callback_error=None)) == record_of(run)
        (said,) = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert run.run_id in said.getMessage()
        assert "after 3 attempts: 503" in said.getMessage()

    async def test_at_once_if_another_attempt_is_pointless(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        run = await create(store, callbacks=(target(),))
        assert await new_relay(store, Postman(hook=lambda _: GONE)).flush(5)
        dead = await only_delivery(store)
        assert (dead.state, dead.attempts) == (DeliveryState.DEAD, 1)
        now = await store.get_run(run.run_id)
        assert record_of(replace(now, callback_error=None)) == record_of(run)

    async def test_wording_of_a_target_can_always_be_stored(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        await create(store, callbacks=(target(),))
        wording = NotTaken(error="half a pair \ud800 " + "x" * 100_000, again=False)
        assert await new_relay(store, Postman(hook=lambda _: wording)).flush(5)
        error = (await only_delivery(store)).last_error or ""
        assert error.startswith("half a pair ? xxx")
        assert len(error) == 2000

    async def test_sent_again_under_the_same_id_when_somebody_asks(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        run = await create(store, callbacks=(target(),))
        postman = Postman(hook=one_after_another(GONE))
        relay = new_relay(store, postman)
        assert await relay.flush(5)
        dead = await only_delivery(store)
        await store.requeue_delivery(dead.id)
        assert await relay.flush(5)
        first, again = postman.sent
        assert first.id == again.id == dead.id
        assert (first.redelivery, again.redelivery) == (False, True)
        assert (await only_delivery(store)).state == DeliveryState.DELIVERED
        assert record_of(await store.get_run(run.run_id)) == record_of(run)
