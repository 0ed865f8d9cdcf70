"""``CensusTaking``: numbers that are right, or as large as was asked for."""

from __future__ import annotations

import asyncio

from tenure.model.status import TERMINAL_RUN, RunStatus
from tenure.ports.store import Census, CensusTaking
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness, CountingStore
from tenure.testing.factories import HOOK, claim_request, end_run


class CensusContract(ContractHarness):
    async def test_store_takes_a_census(self, store: CountingStore) -> None:
        assert isinstance(store, CensusTaking)

    async def test_empty_store_has_nothing_to_do(self, store: CountingStore) -> None:
        assert await store.take_census() == Census(
            runs=dict.fromkeys(RunStatus, 0), callbacks_waiting=0, callbacks_dead=0, queues=()
        )

    async def test_runs_are_counted_by_their_status(self, store: CountingStore) -> None:
        for _ in range(3):
            await create(store)
        running = await create_embedded(store)
        for status in sorted(TERMINAL_RUN):
            await write(store, end_run(await create_embedded(store), status))
        wanted = {RunStatus.QUEUED: 3, RunStatus.RUNNING: 1, **dict.fromkeys(TERMINAL_RUN, 1)}
        assert (await store.take_census()).runs == wanted
        await write(store, end_run(running, RunStatus.FAILED))
        wanted |= {RunStatus.RUNNING: 0, RunStatus.FAILED: 2}
        assert (await store.take_census()).runs == wanted

    async def test_queue_is_as_long_as_what_could_be_claimed(self, store: CountingStore) -> None:
        for queue in ("gpu", "default", "gpu", "gpu"):
            await create(store, queue=queue)
        lengths = {each.queue: each.runs for each in (await store.take_census()).queues}
        assert lengths == {"default": 1, "gpu": 3}
        await store.claim_runs(claim_request(queues=("gpu",), limit=2))
        lengths = {each.queue: each.runs for each in (await store.take_census()).queues}
        assert lengths == {"default": 1, "gpu": 1}

    async def test_age_is_that_of_the_oldest(self, store: CountingStore) -> None:
        await create(store)
        await self.pass_time(0.2)
        await create(store)
        (waiting,) = (await store.take_census()).queues
        assert 0.2 <= waiting.oldest_seconds < 60

    async def test_callbacks_wait_until_they_are_settled(self, store: CountingStore) -> None:
        await create(store, callbacks=(HOOK,))
        found = await store.take_census()
        assert (found.callbacks_waiting, found.callbacks_dead) == (1, 0)

    async def test_nothing_is_counted_further_than_asked(self, store: CountingStore) -> None:
        await asyncio.gather(*(create(store, queue=f"queue-{i % 3}") for i in range(12)))
        found = await store.take_census(most=2)
        assert found.runs[RunStatus.QUEUED] == 2
        assert [each.runs for each in found.queues] == [2, 2]
