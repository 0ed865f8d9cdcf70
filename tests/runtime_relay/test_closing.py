"""Waiting for callbacks to go out, and closing although some have not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.model.retry_policy import RetryPolicy
from tenure.model.status import DeliveryState
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create
from tenure.testing.factories import unique
from tests.runtime.puppets import Between
from tests.runtime_relay.conftest import NewRelay
from tests.runtime_relay.senders import (
    BUSY,
    EVERYTHING,
    PATIENCE,
    Postman,
    busy_run,
    hanging,
    once_set,
    one_after_another,
    states,
    target,
)

pytestmark = pytest.mark.slow


class TestFlush:
    async def test_waits_for_the_first_attempt_of_each_and_no_longer(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        run = await busy_run(store, EVERYTHING, target(1, "other"), steps=1)
        postman = Postman(hook=one_after_another(None, BUSY))
        assert await new_relay(store, postman).flush(PATIENCE, [run.run_id])
        assert len(postman.places(run.run_id)) == 2
        assert len(postman.places(run.run_id, "other")) == 2

    async def test_other_runs_are_not_waited_for(self, store: Any, new_relay: NewRelay) -> None:
        for number in range(30):
            await create(store, callbacks=(target(number % 3, "hung"),))
        run = await create(store, callbacks=(target(4),))
        relay = new_relay(store, Postman(hung=hanging))
        assert await relay.flush(PATIENCE, [run.run_id])
        assert not await relay.flush(0.01)

    async def test_its_time_is_bounded(self, store: Any, new_relay: NewRelay) -> None:
        run = await create(store, callbacks=(target(),))
        relay = new_relay(store, Postman(hook=hanging))
        assert not await relay.flush(0.01, [run.run_id])
        assert not await relay.flush(0.01)


class TestClose:
    async def test_what_is_under_way_may_end(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await busy_run(memory, target())
        go_on = asyncio.Event()

        postman = Postman(hook=once_set(go_on))
        relay = new_relay(memory, postman)
        await postman.carries(1)
        closing = asyncio.create_task(relay.close(PATIENCE))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait_for(closing, PATIENCE / 2)
        assert await states(memory) == [(DeliveryState.WAITING, 0), (DeliveryState.DELIVERED, 1)]
        assert len(postman.sent) == 1
        waiting, _ = (await memory.list_deliveries()).items
        assert waiting.token is None, "claimed though nobody will send it"

    async def test_what_is_cut_short_counts_and_the_waits_grow_to_the_last_attempt(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        """A receiver that takes longer than any process lives becomes a dead letter too."""
        await create(memory, callbacks=(target(),))
        postman = Postman(hook=hanging)
        policy = RetryPolicy(attempts=3, delay=5, backoff=4)
        for attempt, wait in enumerate((5, 20), start=1):
            relay = new_relay(memory, postman, policy=policy)
            await postman.carries(attempt)
            await relay.close(0)
            assert await states(memory) == [(DeliveryState.WAITING, attempt)]
            clock.advance(wait - 0.001)
            assert await memory.claim_deliveries(unique("token")) == []
            clock.advance(0.001)
        relay = new_relay(memory, postman, policy=policy)
        await postman.carries(3)
        await relay.close(0)
        (dead,) = (await memory.list_deliveries()).items
        assert (dead.state, dead.attempts) == (DeliveryState.DEAD, 3)
        assert dead.last_error == "stopped while sending; the target may have got it"

    async def test_what_was_only_queued_is_put_back_and_cost_no_attempt(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        for _ in range(5):
            await create(memory, callbacks=(target(),))
        postman = Postman(hook=hanging)
        relay = new_relay(memory, postman)
        await postman.carries(2)
        await relay.close(0)
        assert len(postman.sent) == 2
        assert sorted(attempts for _, attempts in await states(memory)) == [0, 0, 0, 1, 1]
        assert len(await memory.claim_deliveries(unique("token"))) == 3

    async def test_store_that_does_not_answer_does_not_hold_it_up(
        self,
        memory: InMemoryStore,
        new_relay: NewRelay,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        await create(memory, callbacks=(target(),))
        store = Between(memory)
        stuck = asyncio.Event()

        async def never(real: Any, *args: Any, **kwargs: Any) -> Any:
            stuck.set()
            await asyncio.Event().wait()

        store.rules["settle_and_claim"] = never
        relay = new_relay(store, Postman())
        await asyncio.wait_for(stuck.wait(), PATIENCE)
        async with asyncio.timeout(PATIENCE):
            await relay.close(0.01)
        assert "1 callbacks were sent and the store could not be told" in caplog.text


class TestEnding:
    """Closing while something is owed, with an hour for all of it."""

    async def test_what_was_begun_for_others_may_end_though_nothing_is_owed(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        answer = asyncio.Event()
        postman = Postman(hook=once_set(answer))
        relay = new_relay(memory, postman)
        await postman.carries(1)
        closing = asyncio.create_task(relay.close(3600))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not closing.done()
        answer.set()
        await asyncio.wait_for(closing, PATIENCE)
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)]
