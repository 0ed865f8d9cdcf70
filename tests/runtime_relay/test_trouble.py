"""A store on a bad day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from tenure.model.errors import StoreLost, StoreUnavailable
from tenure.model.outbox import Delivery, Outcome, Settlement
from tenure.model.status import DeliveryState
from tenure.ports.callbacks import Outbox, OutboxBatches
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create
from tenure.testing.faults import FaultyStore
from tests.runtime.puppets import Between, Outage
from tests.runtime_relay.conftest import NEVER_POLLS, NewRelay
from tests.runtime_relay.senders import (
    EVERYTHING,
    PATIENCE,
    Postman,
    busy_run,
    once_set,
    states,
    target,
)

pytestmark = pytest.mark.slow


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


class Locked:
    """Of this run the store settles nothing while the door is closed; of all others it does."""

    def __init__(self, store: Between, run_id: str) -> None:
        self.closed = True
        self._run_id = run_id
        self._refused = asyncio.Semaphore(0)
        store.rules["settle_deliveries"] = self._settle
        store.rules["settle_and_claim"] = self._settle_and_claim
        self._store = store

    async def refuses(self, times: int) -> None:
        for _ in range(times):
            await self._refused.acquire()

    async def _settle(self, real: Any, settlements: Sequence[Settlement]) -> Any:
        can = [each for each in settlements if not await self._is_locked(each)]
        return self._all(settlements, can, await real(can))

    async def _settle_and_claim(
        self, real: Any, settlements: Sequence[Settlement], *args: Any, **wanted: Any
    ) -> Any:
        can = [each for each in settlements if not await self._is_locked(each)]
        answers, claimed = await real(can, *args, **wanted)
        return self._all(settlements, can, answers), claimed

    async def _is_locked(self, settlement: Settlement) -> bool:
        delivery = await self._store.real.get_delivery(settlement.delivery_id)
        locked = self.closed and delivery.run_id == self._run_id
        if locked:
            self._refused.release()
        return locked

    def _all(
        self, asked: Sequence[Settlement], can: Sequence[Settlement], answers: Sequence[Any]
    ) -> list[Any]:
        settled = {one.delivery_id: each for one, each in zip(can, answers, strict=True)}
        return [settled.get(one.delivery_id, StoreUnavailable("locked")) for one in asked]


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
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
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

    async def test_one_that_cannot_be_settled_is_kept_and_delays_no_other(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        """Somebody holds its run, say. It is not sent twice for that."""
        locked, other = [await busy_run(memory, EVERYTHING, steps=2) for _ in range(2)]
        store, postman = Between(memory), Postman()
        door = Locked(store, locked.run_id)
        relay = new_relay(store, postman)
        async with asyncio.timeout(PATIENCE):
            while len(postman.places(other.run_id)) < 14:
                await postman.carries(len(postman.ids) + 1)
            await door.refuses(3)
        assert len(postman.places(locked.run_id)) == 1
        door.closed = False
        assert await relay.flush(PATIENCE)
        assert len(postman.ids) == len(set(postman.ids)) == 28
        assert {state for state, _ in await states(memory)} == {DeliveryState.DELIVERED}

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (
                StoreUnavailable("down"),
                "the store does not answer about callbacks (down); they wait",
            ),
            (StoreLost("r.db was removed"), "no callbacks are sent any more: r.db was removed"),
        ],
    )
    async def test_closing_without_having_asked_is_no_answer(
        self,
        memory: InMemoryStore,
        new_relay: NewRelay,
        caplog: pytest.LogCaptureFixture,
        error: Exception,
        said: str,
    ) -> None:
        """A relay that holds nothing closes without another word to the store."""
        store = Between(memory)
        refused = asyncio.Event()

        async def gone(real: Any, *args: Any, **kwargs: Any) -> Any:
            refused.set()
            raise error

        store.rules["claim_deliveries"] = gone
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
            relay = new_relay(store, Postman())
            async with asyncio.timeout(PATIENCE):
                await refused.wait()
            await relay.close(PATIENCE)
        (line,) = (one.getMessage() for one in caplog.records if one.name == "tenure.runtime")
        assert line.startswith(said)

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

        postman = Postman(hook=once_set(go_on))
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
