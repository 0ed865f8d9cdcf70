"""Reconciling: a run that does not resume, or that was asked to stop, is ended for its dead owner,
never for a live one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import LeaseHeld, LeaseLost, NotRunnable, RunNotFound
from tenure.model.leases import ClaimRequest, Purpose
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, Recovery, RunStatus
from tenure.model.update import Changes
from tenure.testing.contracts.acts import (
    claim,
    create,
    create_embedded,
    lease_of,
    record_of,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import (
    LONG,
    cancel,
    claim_request,
    end_run,
    fencing_of,
    finish_host,
    lease_request,
    owner_update,
    start_step,
    unique,
)


class Reconciling(ContractHarness):
    async def test_reconcile_cannot_hit_a_live_run(self, store: LeasingStore) -> None:
        """Nobody concludes from a read that an owner is dead: the claim itself is the judge."""
        run = await create_embedded(store, "owner-a", seconds=self.lease_seconds)
        await store.renew_leases([lease_of(run)], LONG)
        await self.expire_leases()
        with pytest.raises(LeaseHeld):
            await _reconcile(store, run.run_id)
        assert await store.claim_runs(_sweep()) == []
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_in_progress_run_is_marked_interrupted_on_restart(
        self, store: LeasingStore
    ) -> None:
        run = await create_embedded(store, "owner-a", seconds=self.lease_seconds)
        run = await start_first_step(store, run)
        await self.expire_leases()
        claimed = await _reconcile(store, run.run_id)
        ended = await write(store, end_run(claimed, RunStatus.INTERRUPTED))
        assert (ended.status, ended.interrupted_reason) == ("interrupted", "owner gone")
        assert (ended.version, ended.fence) == (run.version + 2, run.fence + 1)
        assert (ended.owner_id, ended.lease_expires_at) == (None, None)
        assert ended.steps[0].hosts["web1"].status == HostStatus.INTERRUPTED

    async def test_owner_waking_during_reconcile_is_refused(self, store: LeasingStore) -> None:
        run = await create_embedded(store, "owner-a", seconds=self.lease_seconds)
        run = await start_first_step(store, run)
        await self.expire_leases()
        claimed = await _reconcile(store, run.run_id)
        for late in (finish_host(run), start_step(run, 1)):
            with pytest.raises(LeaseLost):
                await store.update_run(late)
        assert not (await store.renew_leases([lease_of(run)], LONG))[0].ok
        ended = await write(store, end_run(claimed, RunStatus.INTERRUPTED))
        with pytest.raises(LeaseLost):
            await store.update_run(end_run(run, RunStatus.INTERRUPTED))
        assert await store.get_run(run.run_id) == ended

    async def test_second_reconciler_finds_the_first_at_work(self, store: LeasingStore) -> None:
        """Exactly one of them ends the run, so exactly one callback is owed."""
        run = await create_embedded(store, "owner-a", seconds=self.lease_seconds)
        await self.expire_leases()
        claimed = await _reconcile(store, run.run_id, "reconciler-1")
        with pytest.raises(LeaseHeld):
            await _reconcile(store, run.run_id, "reconciler-2")
        await store.update_run(end_run(claimed, RunStatus.INTERRUPTED))
        with pytest.raises(NotRunnable):
            await _reconcile(store, run.run_id, "reconciler-2")

    async def test_reconcile_leaves_runs_that_resume_to_workers(self, store: LeasingStore) -> None:
        run = await create_embedded(store, seconds=self.lease_seconds, recovery=Recovery.RESUME)
        await self.expire_leases()
        with pytest.raises(NotRunnable):
            await _reconcile(store, run.run_id)
        assert await store.claim_runs(_sweep()) == []
        assert (await claim(store, run.run_id, "worker-1")).takeovers == 1

    async def test_run_that_resumes_and_was_asked_to_stop_is_ended_without_a_worker(
        self, store: LeasingStore
    ) -> None:
        """The request came while its owner lived, and its owner was gone before it could obey."""
        run = await self._asked_to_stop(store, seconds=self.lease_seconds)
        with pytest.raises(LeaseHeld):
            await _reconcile(store, run.run_id)
        assert await store.claim_runs(_sweep()) == []
        await self.expire_leases()
        (claimed,) = await store.claim_runs(_sweep())
        assert claimed.snapshot.fence == run.fence + 1
        with pytest.raises(LeaseLost):
            await store.update_run(start_step(run, 0))
        ended = await write(store, end_run(claimed.snapshot, RunStatus.CANCELED))
        assert (ended.status, ended.owner_id) == ("canceled", None)

    async def test_run_to_be_canceled_is_taken_from_an_owner_proven_dead_at_once(
        self, store: LeasingStore
    ) -> None:
        """Of its other runs none is touched: they resume."""
        run = await self._asked_to_stop(store, "dead")
        await self._asked_to_stop(store, "alive")
        other = await create_embedded(store, "dead", recovery=Recovery.RESUME)
        request = replace(_sweep(), expired=False, dead_owners=frozenset({"dead"}))
        assert [one.lease.run_id for one in await store.claim_runs(request)] == [run.run_id]
        assert record_of(await store.get_run(other.run_id)) == record_of(other)

    @pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.QUEUED])
    async def test_run_given_back_after_it_was_asked_to_stop_is_ended_by_a_sweep(
        self, store: LeasingStore, status: RunStatus
    ) -> None:
        run = await self._asked_to_stop(store, status=status)
        await store.release_lease(run.run_id, fencing_of(run), unique("release"))
        ended = await write(store, end_run(await create_embedded(store), RunStatus.CANCELED))
        assert [one.lease.run_id for one in await store.claim_runs(_sweep())] == [run.run_id]
        assert await store.get_run(ended.run_id) == ended

    @staticmethod
    async def _asked_to_stop(
        store: LeasingStore, owner_id: str = "owner-a", **fields: Any
    ) -> RunSnapshot:
        run = await create_embedded(store, owner_id, recovery=Recovery.RESUME, **fields)
        return await write(store, cancel(run))

    async def test_workers_leave_runs_that_do_not_resume_to_reconcile(
        self, store: LeasingStore
    ) -> None:
        run = await create_embedded(store, seconds=self.lease_seconds)
        await self.expire_leases()
        with pytest.raises(NotRunnable):
            await store.claim_run(run.run_id, lease_request("worker-1"))
        assert await store.claim_runs(claim_request("worker-1", limit=5)) == []
        assert (await store.list_runnable()).items == ()

    async def test_queued_run_that_waits_for_its_first_owner_is_not_reconciled(
        self, store: LeasingStore
    ) -> None:
        run = await create(store, recovery=Recovery.INTERRUPT)
        with pytest.raises(NotRunnable):
            await _reconcile(store, run.run_id)
        assert await store.claim_runs(_sweep()) == []

    async def test_sweep_finds_every_run_whose_owner_is_gone(self, store: LeasingStore) -> None:
        """Whatever its queue: running or queued, expired or released."""
        expired = await create_embedded(store, seconds=self.lease_seconds, queue="gpu")
        queued = await create_embedded(store, seconds=self.lease_seconds, status=RunStatus.QUEUED)
        released = await create_embedded(store)
        await store.update_run(owner_update(released, Changes(), release=True))
        alive = await create_embedded(store, "owner-b")
        await self.expire_leases()
        claimed = await store.claim_runs(_sweep())
        found = {one.lease.run_id: one.snapshot.takeovers for one in claimed}
        assert found == {expired.run_id: 1, queued.run_id: 1, released.run_id: 0}
        assert record_of(await store.get_run(alive.run_id)) == record_of(alive)

    async def test_sweep_takes_runs_of_owners_proven_dead_at_once(
        self, store: LeasingStore
    ) -> None:
        dead, alive = await create_embedded(store, "dead"), await create_embedded(store, "alive")
        request = claim_request(
            "reconciler", limit=5, purpose=Purpose.RECONCILE, dead_owners=frozenset({"dead"})
        )
        assert [one.lease.run_id for one in await store.claim_runs(request)] == [dead.run_id]
        assert (await store.get_run(alive.run_id)).owner_id == "alive"

    async def test_unknown_run_cannot_be_reconciled(self, store: LeasingStore) -> None:
        with pytest.raises(RunNotFound):
            await _reconcile(store, "never-created")


def _sweep() -> ClaimRequest:
    return claim_request("reconciler", limit=10, purpose=Purpose.RECONCILE)


async def _reconcile(store: LeasingStore, run_id: str, owner_id: str = "reconciler") -> RunSnapshot:
    claimed = await store.claim_run(run_id, lease_request(owner_id), Purpose.RECONCILE)
    return claimed.snapshot
