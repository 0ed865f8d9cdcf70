"""A store on a bad day, a sender that hangs, a relay that is frozen, closed or not alone."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tenure.model.errors import StoreUnavailable
from tenure.model.outbox import Delivery, Outcome
from tenure.model.retry import RetryPolicy
from tenure.model.status import DeliveryState
from tenure.ports.outbox import Outbox, OutboxBatches
from tenure.ports.sender import NotTaken
from tenure.runtime.relay import Relay
from tenure.runtime.relay_timing import RelayTiming
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create
from tenure.testing.factories import unique
from tenure.testing.faults import FaultyStore
from tests.runtime.puppets import Between, Outage
from tests.runtime_relay.conftest import NEVER_POLLS, NewRelay
from tests.runtime_relay.senders import (
    BUSY,
    PATIENCE,
    Postman,
    busy_run,
    hanging,
    one_after_another,
    target,
)

pytestmark = pytest.mark.slow

EVERYTHING = target(events=("run", "step", "host"))


async def states(store: Outbox) -> list[tuple[DeliveryState, int]]:
    return [(one.state, one.attempts) for one in (await store.list_deliveries()).items]


class OneByOne:
    """An outbox that settles nothing in batches."""

    durable = False

    def __init__(self, store: InMemoryStore) -> None:
        self._store = store
        self.claim_deliveries = store.claim_deliveries
        self.list_deliveries = store.list_deliveries
        self.get_delivery = store.get_delivery
        self.requeue_delivery = store.requeue_delivery

    async def settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        return await self._store.settle_delivery(delivery_id, token, outcome)


class TestBadStore:
    @pytest.mark.parametrize("seed", range(5))
    async def test_every_callback_arrives_through_faults(
        self, memory: InMemoryStore, new_relay: NewRelay, seed: int
    ) -> None:
        """One call in four fails, before or after it was done; nothing is lost, nothing is out of
        order, and nothing is even sent twice."""
        runs = [await busy_run(memory, EVERYTHING, steps=4) for _ in range(4)]
        store = FaultyStore(memory, seed=seed, rate=0.25)
        postman = Postman()
        assert await new_relay(store, postman).flush(PATIENCE)
        assert store.injected.total() > 5
        for run in runs:
            places = postman.places(run.run_id)
            assert places == sorted(set(places))
            assert len(places) == 26
        assert {state for state, _ in await states(memory)} == {DeliveryState.DELIVERED}

    @pytest.mark.parametrize("method", ["claim_deliveries", "settle_and_claim"])
    async def test_outage_is_waited_out_and_said_once(
        self,
        memory: InMemoryStore,
        new_relay: NewRelay,
        caplog: pytest.LogCaptureFixture,
        method: str,
    ) -> None:
        await busy_run(memory, EVERYTHING, steps=1)
        store = Between(memory)
        outage = Outage(store, method)
        outage.on = True
        postman = Postman()
        with caplog.at_level(logging.INFO, "tenure.runtime"):
            relay = new_relay(store, postman)
            await outage.refuses(3)
            outage.on = False
            assert await relay.flush(PATIENCE)
        assert len(postman.ids) == len(set(postman.ids)) == 8
        said = [one.getMessage() for one in caplog.records if one.name == "tenure.runtime"]
        assert [one.split(" (")[0] for one in said] == [
            "the store does not answer about callbacks",
            "the store answers about callbacks again",
        ]

    async def test_bug_of_a_store_does_not_end_the_relay(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        store = Between(memory)
        failures = iter([ZeroDivisionError("bug"), ZeroDivisionError("again")])

        async def broken(real: Any, *args: Any, **kwargs: Any) -> Any:
            for failure in failures:
                raise failure
            return await real(*args, **kwargs)

        store.rules["claim_deliveries"] = broken
        assert await new_relay(store, Postman()).flush(PATIENCE)
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)]

    async def test_claim_whose_answer_was_lost_is_sent_again_under_its_token(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        store = Between(memory)
        tokens: list[str] = []

        async def lost_once(real: Any, *args: Any, **kwargs: Any) -> Any:
            tokens.append(args[-1])
            answer = await real(*args, **kwargs)
            if len(tokens) == 1:
                raise StoreUnavailable("the answer was lost")
            return answer

        store.rules["claim_deliveries"] = store.rules["settle_and_claim"] = lost_once
        postman = Postman()
        assert await new_relay(store, postman).flush(PATIENCE)
        assert len(postman.sent) == 1
        first, second, third, *_ = tokens
        assert first == second != third

    async def test_turn_whose_answer_was_lost_is_taken_again(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        """What it settled is recognised, what it claimed is returned; nothing is sent twice."""
        run = await busy_run(memory, EVERYTHING, steps=1)
        store = Between(memory)
        turns: list[tuple[list[str], str]] = []

        async def lost_every_other(real: Any, ended: Any, token: str, **kwargs: Any) -> Any:
            turns.append(([each.delivery_id for each in ended], token))
            answer = await real(ended, token, **kwargs)
            if len(turns) % 2:
                raise StoreUnavailable("the answer was lost")
            return answer

        store.rules["settle_and_claim"] = lost_every_other
        postman = Postman()
        assert await new_relay(store, postman).flush(PATIENCE)
        assert postman.places(run.run_id) == sorted(set(postman.places(run.run_id)))
        assert len(turns) >= 2 * 8
        assert all(first == again for first, again in zip(turns[::2], turns[1::2], strict=True))
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)] * 8

    async def test_store_that_settles_one_by_one(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        for number in range(30):
            await create(memory, callbacks=(target(number % 3),))
        outbox = OneByOne(memory)
        assert isinstance(outbox, Outbox)
        assert not isinstance(outbox, OutboxBatches)
        assert await new_relay(outbox, Postman()).flush(PATIENCE)
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)] * 30

    async def test_outage_of_a_store_that_settles_one_by_one(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        for number in range(5):
            await create(memory, callbacks=(target(number),))
        store = Between(OneByOne(memory))
        outage = Outage(store, "settle_delivery")
        outage.on = True
        postman = Postman()
        relay = new_relay(store, postman)
        await outage.refuses(2)
        outage.on = False
        assert await relay.flush(PATIENCE)
        assert len(postman.sent) == 5
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)] * 5

    async def test_refused_settlement_harms_no_other_one_by_one(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(1),))
        await create(memory, callbacks=(target(2),))
        go_on = asyncio.Event()

        async def slow(_: Delivery) -> None:
            await go_on.wait()

        postman = Postman(hook=slow)
        relay = new_relay(OneByOne(memory), postman)
        await postman.carries(2)
        clock.advance(NEVER_POLLS.claim)
        (taken,) = await memory.claim_deliveries("another relay", limit=1)
        go_on.set()
        assert await relay.flush(PATIENCE)
        assert sorted(await states(memory)) == [
            (DeliveryState.DELIVERED, 1),
            (DeliveryState.WAITING, 0),
        ]
        assert taken.token == "another relay"


class TestTime:
    SHORT = RelayTiming(send=0.02, begin=0.02, margin=0.02, poll=3600)

    async def test_hanging_sender_is_cut_off_before_its_claim_ends(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        assert await new_relay(memory, Postman(hook=hanging), timing=self.SHORT).flush(PATIENCE)
        (delivery,) = (await memory.list_deliveries()).items
        assert (delivery.attempts, delivery.last_error) == (1, "no answer in time")

    async def test_frozen_relay_is_refused_and_harms_nothing(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        """Its claim ran out while it was sending; another relay sent the same id and failed."""
        await create(memory, callbacks=(target(),))
        thaws = asyncio.Event()

        async def frozen(_: Delivery) -> None:
            await thaws.wait()

        cold = Postman(hook=frozen)
        relay = new_relay(memory, cold)
        await cold.carries(1)
        clock.advance(NEVER_POLLS.claim)
        warm = Postman(hook=one_after_another(BUSY))
        assert await new_relay(memory, warm).flush(PATIENCE)
        thaws.set()
        assert await relay.flush(PATIENCE)
        assert cold.ids == warm.ids
        assert await states(memory) == [(DeliveryState.WAITING, 1)]

    async def test_nobody_else_sends_while_the_claim_lasts(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        await busy_run(memory, target())
        first = Postman(hook=hanging)
        new_relay(memory, first)
        await first.carries(1)
        clock.advance(NEVER_POLLS.claim - 0.001)
        second = Postman()
        assert await new_relay(memory, second).flush(PATIENCE)
        assert second.sent == []

    async def test_attempt_of_a_machine_that_slept_goes_on_under_the_new_claim(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        """The store's clock went on while ours stood still: the claim ran out, and this very relay
        claims again what it is sending. It is sent once, and settled."""
        await create(memory, callbacks=(target(),))
        go_on = asyncio.Event()

        async def slow(_: Delivery) -> None:
            await go_on.wait()

        postman = Postman(hook=slow)
        relay = new_relay(memory, postman)
        await postman.carries(1)
        clock.advance(NEVER_POLLS.claim)
        assert not await relay.flush(0.05)
        (delivery,) = (await memory.list_deliveries()).items
        assert delivery.token != postman.sent[0].token, "it was not claimed again"
        go_on.set()
        assert await relay.flush(PATIENCE)
        assert len(postman.sent) == 1
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)]

    async def test_what_a_machine_that_slept_had_queued_is_sent_once_under_the_new_claim(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        for _ in range(4):
            await create(memory, callbacks=(target(),))
        go_on = asyncio.Event()

        async def slow(_: Delivery) -> None:
            await go_on.wait()

        postman = Postman(hook=slow)
        relay = new_relay(memory, postman)
        await postman.carries(2)
        clock.advance(NEVER_POLLS.claim)
        await relay.flush(0.05)
        go_on.set()
        assert await relay.flush(PATIENCE)
        assert len(postman.ids) == len(set(postman.ids)) == 4
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)] * 4

    async def test_what_cannot_begin_in_time_is_left_to_others(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        """Queued behind two that hang: no attempt is counted, and after the claim it is free."""
        for _ in range(4):
            await create(memory, callbacks=(target(),))
        stuck = Postman(hook=hanging)
        timing = RelayTiming(send=3600, begin=0.05, margin=1, poll=3600)
        relay = new_relay(memory, stuck, timing=timing)
        await stuck.carries(2)
        for _ in range(2):
            await relay.flush(0.1)
        assert not list(relay._lanes.queued()), "still held"
        clock.advance(timing.claim)
        free = Postman()
        assert await new_relay(memory, free).flush(PATIENCE)
        assert len(free.sent) == 4
        assert len(stuck.sent) == 2


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

    @pytest.mark.parametrize("all_runs", [False, True])
    async def test_waiting_asks_the_store_nothing_while_nothing_happens(
        self, memory: InMemoryStore, new_relay: NewRelay, all_runs: bool
    ) -> None:
        run = await create(memory, callbacks=(target(),))
        store = Between(memory)
        relay = new_relay(store, Postman(hook=hanging))
        assert not await relay.flush(0.1, None if all_runs else [run.run_id])
        assert len(store.calls) <= 6

    async def test_store_is_not_asked_while_we_hold_what_is_waited_for(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        """A run of fifty callbacks, each of which is a turn, is looked at once."""
        store = Between(memory)
        run = await busy_run(memory, EVERYTHING)
        relay = new_relay(store, Postman())
        assert await relay.flush(PATIENCE, [run.run_id])
        assert store.count("settle_and_claim") >= 50
        assert store.count("list_deliveries") <= 3
        assert {state for state, _ in await states(memory)} == {DeliveryState.DELIVERED}

    async def test_bug_of_a_store_leaves_it_open(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        run = await create(memory, callbacks=(target(),))
        store = Between(memory)
        failures = iter([ZeroDivisionError("bug")])

        async def broken(real: Any, *args: Any, **kwargs: Any) -> Any:
            for failure in failures:
                raise failure
            return await real(*args, **kwargs)

        store.rules["list_deliveries"] = broken
        relay = new_relay(store, Postman(), timing=RelayTiming(poll=0.01))
        assert await relay.flush(PATIENCE, [run.run_id])

    async def test_store_that_does_not_answer_leaves_it_open(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        run = await create(memory, callbacks=(target(),))
        store = Between(memory)
        outage = Outage(store, "list_deliveries")
        outage.on = True
        relay = new_relay(store, Postman(), timing=RelayTiming(poll=0.01))
        waiting = asyncio.create_task(relay.flush(PATIENCE, [run.run_id]))
        await outage.refuses(2)
        assert not waiting.done()
        outage.on = False
        assert await waiting


class TestClose:
    async def test_what_is_under_way_may_end(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await busy_run(memory, target())
        go_on = asyncio.Event()

        async def slow(_: Delivery) -> None:
            await go_on.wait()

        postman = Postman(hook=slow)
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

    async def test_what_ended_is_settled_while_others_are_still_under_way(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(1), target(2, "hung")))
        go_on = asyncio.Event()

        async def slow(_: Delivery) -> None:
            await go_on.wait()

        store = Between(memory)
        settled = asyncio.Event()

        async def note(real: Any, *args: Any) -> Any:
            answer = await real(*args)
            settled.set()
            return answer

        store.rules["settle_deliveries"] = note
        postman = Postman(hook=slow, hung=hanging)
        relay = new_relay(store, postman)
        await postman.carries(2)
        closing = asyncio.create_task(relay.close(PATIENCE))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait_for(settled.wait(), PATIENCE / 2)
        assert not closing.done()
        assert sorted(await states(memory)) == [
            (DeliveryState.DELIVERED, 1),
            (DeliveryState.WAITING, 0),
        ]
        closing.cancel()

    async def test_what_is_cut_short_is_tried_again_soon_and_never_a_dead_letter(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        postman = Postman(hook=hanging)
        only_one = RetryPolicy(attempts=1, delay=5)
        relay = new_relay(memory, postman, policy=only_one)
        await postman.carries(1)
        await relay.close(0.01)
        (delivery,) = (await memory.list_deliveries()).items
        assert (delivery.state, delivery.attempts) == (DeliveryState.WAITING, 1)
        assert delivery.last_error == "stopped while sending; the target may have got it"
        clock.advance(5)
        (again,) = await memory.claim_deliveries(unique("token"))
        assert again.id == delivery.id

    async def test_what_was_only_queued_cost_no_attempt(
        self, memory: InMemoryStore, clock: ManualClock, new_relay: NewRelay
    ) -> None:
        for _ in range(5):
            await create(memory, callbacks=(target(),))
        postman = Postman(hook=hanging)
        relay = new_relay(memory, postman)
        await postman.carries(2)
        await relay.close(0)
        assert len(postman.sent) == 2
        assert sorted(attempts for _, attempts in await states(memory)) == [0, 0, 0, 1, 1]
        clock.advance(NEVER_POLLS.claim)
        assert len(await memory.claim_deliveries(unique("token"))) == 5

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

    async def test_store_that_fails_is_not_waited_for_if_nothing_is_owed(
        self, memory: InMemoryStore, new_relay: NewRelay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It pauses for longer than anybody wants to wait; closing ends the pause."""
        an_hour = RetryPolicy(attempts=1000, delay=3600)
        monkeypatch.setattr("tenure.runtime.relay.ENDLESS", an_hour)
        store = Between(memory)
        outage = Outage(store, "claim_deliveries")
        outage.on = True
        relay = new_relay(store, Postman())
        await outage.refuses(1)
        await asyncio.wait_for(relay.close(3600), PATIENCE)

    async def test_what_is_cancelled_before_it_begins_cost_no_attempt(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        """It gives its place back, and is left to its claim."""
        await create(memory, callbacks=(target(),))
        store, postman = Between(memory), Postman()
        relay = new_relay(store, postman)
        cancelled: list[asyncio.Task[None]] = []

        def cancel_all() -> None:
            for attempt in relay._carrying._under_way.values():
                attempt.task.cancel()
                cancelled.append(attempt.task)

        async def claim(real: Any, *args: Any, **kwargs: Any) -> Any:
            asyncio.get_running_loop().call_soon(cancel_all)  # ahead of what is begun next
            return await real(*args, **kwargs)

        store.rules["claim_deliveries"] = claim
        assert await relay.flush(PATIENCE)
        assert len(cancelled) == 1
        assert postman.sent == []
        assert await states(memory) == [(DeliveryState.WAITING, 0)]

    async def test_relay_that_never_opened_closes(self, memory: InMemoryStore) -> None:
        await Relay(memory, Postman(), RetryPolicy(), new_id=lambda: "token").close()


class TestCompany:
    async def test_many_relays_send_each_callback_once_and_in_order(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        runs = [await busy_run(store, EVERYTHING, steps=1) for _ in range(10)]
        postman = Postman()
        relays = [new_relay(store, postman, timing=RelayTiming(poll=0.01)) for _ in range(5)]
        ids = [run.run_id for run in runs]
        assert all(await asyncio.gather(*(relay.flush(PATIENCE, ids) for relay in relays)))
        assert len(postman.ids) == len(set(postman.ids)) == 80
        for run in runs:
            places = postman.places(run.run_id)
            assert places == sorted(places)
        assert postman.most_per_run_and_target == 1


class TestIsolation:
    async def test_ten_that_hang_delay_no_other(self, store: Any, new_relay: NewRelay) -> None:
        """They came first and have plenty waiting; nobody ever answers."""
        for _ in range(10):
            for number in range(10):
                await create(store, callbacks=(target(number, "hung"),))
        healthy = [await create(store, callbacks=(target(10),)) for _ in range(40)]
        postman = Postman(hung=hanging)
        relay = new_relay(store, postman)
        assert await relay.flush(PATIENCE, [run.run_id for run in healthy])
        assert sum(one.target.name == "hook" for one in postman.sent) == 40
        assert postman.most[None] <= 100

    async def test_no_more_is_claimed_for_one_than_it_can_use(
        self, store: Any, new_relay: NewRelay
    ) -> None:
        """What this relay does not send soon is left to others."""
        for _ in range(200):
            await create(store, callbacks=(target(0, "hung"),))
        healthy = await create(store, callbacks=(target(1),))
        relay = new_relay(store, Postman(hung=hanging), per_target=5)
        assert await relay.flush(PATIENCE, [healthy.run_id])
        relay.wake()
        await relay.flush(0.05)
        page = await store.list_deliveries(limit=500)
        assert sum(one.token is not None for one in page.items) <= 20

    async def test_ten_that_were_good_and_hang_now_delay_no_other(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        hang = asyncio.Event()

        async def until_now(_: Delivery) -> NotTaken | None:
            if hang.is_set():
                await asyncio.Event().wait()
            return None

        async def many(each: int) -> list[str]:
            return [
                (await create(memory, callbacks=(target(number, "hung"),))).run_id
                for _ in range(each)
                for number in range(10)
            ]

        postman = Postman(hung=until_now)
        relay = new_relay(memory, postman)
        assert await relay.flush(PATIENCE, await many(20))
        hang.set()
        await many(20)
        healthy = [await create(memory, callbacks=(target(10),)) for _ in range(40)]
        assert await relay.flush(PATIENCE, [run.run_id for run in healthy])
        assert 50 < postman.most[None] <= 100
