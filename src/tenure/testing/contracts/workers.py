"""``WorkerRegistry``: who is there, for people to see."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.ports.leases import WorkerInfo, WorkerRegistry
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import LONG


def _worker(owner_id: str = "worker-1", running: int = 0) -> WorkerInfo:
    return WorkerInfo(
        owner_id=owner_id,
        queues=("gpu", "default"),
        concurrency=4,
        running=running,
        details={"version": "1.0", "load": [0.5, None]},
    )


class WorkerRegistryContract(ContractHarness):
    async def test_store_is_a_worker_registry(self, store: WorkerRegistry) -> None:
        assert isinstance(store, WorkerRegistry)

    async def test_nobody_is_there_at_first(self, store: WorkerRegistry) -> None:
        assert await store.list_workers() == []

    async def test_worker_is_listed_as_it_described_itself(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker(), LONG)
        (seen,) = await store.list_workers()
        assert seen.seen_at is not None
        assert replace(seen, seen_at=None) == _worker()

    async def test_worker_that_drains_says_so(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker(), LONG)
        await store.heartbeat(replace(_worker(), draining=True), LONG)
        (seen,) = await store.list_workers()
        assert seen.draining

    async def test_workers_are_listed_by_owner_id(self, store: WorkerRegistry) -> None:
        for owner_id in ("worker-2", "worker-10", "Worker-3", "worker-1"):
            await store.heartbeat(_worker(owner_id), LONG)
        owners = [worker.owner_id for worker in await store.list_workers()]
        assert owners == ["Worker-3", "worker-1", "worker-10", "worker-2"]

    async def test_next_heartbeat_replaces_the_last(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker(running=1), LONG)
        (first,) = await store.list_workers()
        await self.pass_time(0.01)
        await store.heartbeat(_worker(running=2), LONG)
        (second,) = await store.list_workers()
        assert second.running == 2
        assert first.seen_at is not None
        assert second.seen_at is not None
        assert second.seen_at > first.seen_at

    async def test_silent_worker_is_listed_no_more(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker("worker-1"), self.lease_seconds)
        await store.heartbeat(_worker("worker-2"), LONG)
        await self.expire_leases()
        assert [worker.owner_id for worker in await store.list_workers()] == ["worker-2"]

    async def test_worker_that_comes_back_is_listed_again(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker(), self.lease_seconds)
        await self.expire_leases()
        await store.heartbeat(_worker(), LONG)
        assert len(await store.list_workers()) == 1

    async def test_zero_seconds_take_the_entry_away(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker("worker-1"), LONG)
        await store.heartbeat(_worker("worker-2"), LONG)
        await store.heartbeat(_worker("worker-1"), 0)
        assert [worker.owner_id for worker in await store.list_workers()] == ["worker-2"]

    async def test_values_share_nothing_with_the_store(self, store: WorkerRegistry) -> None:
        given = _worker()
        await store.heartbeat(given, LONG)
        given.details.clear()
        (seen,) = await store.list_workers()
        seen.details.clear()
        (again,) = await store.list_workers()
        assert again.details == _worker().details
