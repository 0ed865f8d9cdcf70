"""A store on a bad day, and callbacks without one."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import StoreUnavailable
from tenure.model.outbox import Delivery, Outcome
from tenure.model.retry_policy import RetryPolicy
from tenure.model.status import DeliveryState
from tenure.ports.callbacks import Outbox, OutboxBatches
from tenure.runtime.callbacks import BestEffort
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import create
from tenure.testing.faults import FaultyStore
from tests.runtime.puppets import Between, Outage
from tests.runtime_relay.conftest import NewRelay
from tests.runtime_relay.senders import (
    BUSY,
    EVERYTHING,
    PATIENCE,
    Postman,
    busy_run,
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


class TestBadStore:
    @pytest.mark.parametrize("seed", range(2))
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

    async def test_bug_of_a_store_does_not_end_the_relay(
        self, memory: InMemoryStore, new_relay: NewRelay
    ) -> None:
        await create(memory, callbacks=(target(),))
        store = Between(memory)
        store.fails("claim_deliveries", ZeroDivisionError("bug"), ZeroDivisionError("again"))
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


class TestWithoutAnOutbox:
    """From memory. ``BestEffort`` is imported for its bounds, which no runner lets be set."""

    async def owe(self, effort: BestEffort, postman: Postman, *run_ids: str) -> None:
        """One callback for each run, in order."""
        outbox = InMemoryStore()
        for run_id in run_ids:
            await create(outbox, callbacks=(target(),))
            (owed, *_) = (await outbox.list_deliveries()).items
            effort.owe(replace(owed, run_id=run_id), postman)
        assert await effort.flush(PATIENCE)
        await effort.close(0)

    async def test_one_receiver_gets_so_many_at_once(self) -> None:
        postman = Postman()
        effort = BestEffort(RetryPolicy(attempts=3), gave_up=ignored, per_origin=3)
        await self.owe(effort, postman, *(f"run-{number:05}" for number in range(20)))
        assert (len(postman.sent), postman.most[None]) == (20, 3)

    async def test_memory_is_bounded(self) -> None:
        given_up: list[str | None] = []

        async def gave_up(delivery: Delivery) -> None:
            given_up.append(delivery.last_error)

        patient = RetryPolicy(attempts=3, delay=3600)
        effort = BestEffort(patient, gave_up, max_queued=2)
        await self.owe(effort, Postman(hook=lambda _: BUSY), *["run-00001"] * 3)
        assert given_up[0] == "2 callbacks of this run wait for their target already"


async def ignored(_: Delivery) -> None:
    """It was given up."""
