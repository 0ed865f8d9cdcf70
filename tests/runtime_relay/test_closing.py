"""Waiting for callbacks to go out, and closing although some have not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.model.retry import RetryPolicy
from tenure.model.status import DeliveryState
from tenure.runtime.options import RelayTiming
from tenure.runtime.relay import Relay
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create
from tenure.testing.factories import unique
from tests.runtime.puppets import Between, Outage
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
    skipping,
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

    async def test_what_ended_is_settled_while_others_are_still_under_way(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(1), target(2, "hung")))
        go_on = asyncio.Event()

        store = Between(memory)
        settled = asyncio.Event()

        async def note(real: Any, *args: Any) -> Any:
            answer = await real(*args)
            settled.set()
            return answer

        store.rules["settle_deliveries"] = note
        postman = Postman(hook=once_set(go_on), hung=hanging)
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

    async def test_what_is_claimed_while_closing_begins_is_put_back(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        store, postman = Between(memory), Postman()
        asked, answer = asyncio.Event(), asyncio.Event()

        async def claim(real: Any, *args: Any, **kwargs: Any) -> Any:
            claimed = await real(*args, **kwargs)
            asked.set()
            await answer.wait()
            return claimed

        store.rules["claim_deliveries"] = claim
        relay = new_relay(store, postman)
        await asked.wait()
        closing = asyncio.create_task(relay.close(PATIENCE))
        await asyncio.sleep(0)
        answer.set()
        await asyncio.wait_for(closing, PATIENCE / 2)
        assert postman.sent == []
        assert len(await memory.claim_deliveries(unique("token"))) == 1

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
        monkeypatch.setattr("tenure.aio.ENDLESS", an_hour)
        store = Between(memory)
        outage = Outage(store, "claim_deliveries")
        outage.on = True
        relay = new_relay(store, Postman())
        await outage.refuses(1)
        await asyncio.wait_for(relay.close(3600), PATIENCE)

    async def test_what_is_cancelled_before_it_begins_cost_no_attempt(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        """It is put back, and sent when it is claimed again."""
        await create(memory, callbacks=(target(),))
        store, postman = Between(memory), Postman()
        relay = new_relay(store, postman)
        cancelled: list[asyncio.Task[None]] = []

        def cancel_all() -> None:
            for attempt in () if cancelled else relay._carrying._under_way.values():
                attempt.task.cancel()
                cancelled.append(attempt.task)

        async def claim(real: Any, *args: Any, **kwargs: Any) -> Any:
            asyncio.get_running_loop().call_soon(cancel_all)  # ahead of what is begun next
            return await real(*args, **kwargs)

        store.rules["claim_deliveries"] = claim
        assert await relay.flush(PATIENCE)
        assert len(cancelled) == 1
        assert await states(memory) == [(DeliveryState.DELIVERED, 1)]

    async def test_relay_that_never_opened_closes(self, memory: InMemoryStore) -> None:
        await Relay(memory, Postman(), RetryPolicy(), new_id=lambda: "token").close()


class TestEnding:
    """Closing while something is owed, with an hour for all of it."""

    @pytest.mark.parametrize(("took", "times"), [(1000, 2), (2000, 1)])
    async def test_only_what_there_is_time_for_is_begun(
        self, memory: InMemoryStore, new_relay: NewRelay, took: float, times: int
    ) -> None:
        """By how long the receiver took last. If nothing more can begin, nothing is waited for."""
        run = await busy_run(memory, target())
        answer, skip = asyncio.Event(), skipping()
        postman = Postman(hook=once_set(answer))
        relay = new_relay(memory, postman)
        await postman.carries(1)
        closing = asyncio.create_task(relay.close(3600, [run.run_id]))
        await asyncio.sleep(0)
        skip(took)
        answer.set()
        await asyncio.wait_for(closing, PATIENCE)
        assert len(postman.sent) == times
        attempts = [attempts for _, attempts in await states(memory)]
        assert sorted(attempts) == [times - 1, 1], "what was not begun cost an attempt"

    async def test_what_cannot_begin_any_more_keeps_nobody_from_being_told(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        """There is no time for a receiver that was slow; the other is still to be claimed."""
        await create(memory, callbacks=(target(0, "slow"),))
        answer, skip = asyncio.Event(), skipping()
        postman = Postman(slow=once_set(answer))
        relay = new_relay(memory, postman)
        await postman.carries(1)
        skip(5000)
        answer.set()
        assert await relay.flush(PATIENCE)
        await create(memory, callbacks=(target(0, "slow"),))
        owed = await create(memory, callbacks=(target(1),))
        await asyncio.wait_for(relay.close(3600, [owed.run_id]), PATIENCE)
        assert [each.target.name for each in postman.sent] == ["slow", "hook"]

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

    async def test_cancelled_it_waits_for_nothing_and_still_settles(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        postman = Postman(hook=hanging)
        relay = new_relay(memory, postman)
        await postman.carries(1)
        closing = asyncio.create_task(relay.close(3600))
        for _ in range(50):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing], timeout=PATIENCE)
        assert closing.cancelled()
        assert await states(memory) == [(DeliveryState.WAITING, 1)]
