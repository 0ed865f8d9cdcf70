"""``LeaseStore``: one owner at a time, and no write under an older fence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from threading import Thread
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from tenure.model.errors import LeaseHeld, LeaseLost, NotRunnable, RunNotFound
from tenure.model.leases import ClaimRequest, Purpose
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSnapshot, summarize
from tenure.model.status import HostStatus, Recovery, RunStatus
from tenure.model.update import Changes, Receipt
from tenure.ports.leases import KeptApart, LeaseKeeping, LeaseStore
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    claim,
    create,
    create_embedded,
    lease_of,
    record_of,
    refused,
    start_first_step,
    write,
)
from tenure.testing.contracts.claims import ClaimOrder, Claims, ClaimsInBatches, RunnableDiscovery
from tenure.testing.contracts.harness import ApartKeptStore, ContractHarness, LeasingStore
from tenure.testing.contracts.run_records import AT_BIRTH, WholeClaims
from tenure.testing.factories import (
    LONG,
    cancel,
    change_run,
    claim_request,
    end_run,
    fencing_of,
    finish_host,
    lease_request,
    operator_status,
    owner_update,
    start_run,
    start_step,
    unique,
)


class Renewals(ContractHarness):
    """Renewing and releasing a lease."""

    async def test_worker_renews_a_lease(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id, "worker-1", seconds=600)
        (renewal,) = await store.renew_leases([lease_of(held)], 1200)
        assert renewal.ok
        assert renewal.expires_at is not None
        assert renewal.expires_at - lease_of(held).expires_at > timedelta(seconds=500)
        assert (renewal.run_id, renewal.version) == (held.run_id, held.version)
        assert record_of(await store.get_run(held.run_id)) == record_of(held)

    async def test_renewed_lease_outlives_its_first_end(self, store: LeasingStore) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await store.renew_leases([lease_of(held)], LONG)
        await self.expire_leases()
        await refused(LeaseHeld, store.claim_run(run.run_id, lease_request("worker-2")))
        assert (await store.list_runnable()).items == ()

    async def test_renewal_never_shortens_a_lease(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id, "worker-1", seconds=LONG)
        (renewal,) = await store.renew_leases([lease_of(held)], self.lease_seconds)
        assert renewal.ok
        assert renewal.expires_at is not None
        assert abs(renewal.expires_at - lease_of(held).expires_at) < timedelta(seconds=1)
        await self.expire_leases()
        await refused(LeaseHeld, store.claim_run(held.run_id, lease_request("worker-2")))

    async def test_renewal_answers_each_lease_in_order(self, store: LeasingStore) -> None:
        runs = [await claim(store, (await create(store)).run_id) for _ in range(4)]
        await store.update_run(end_run(runs[0], RunStatus.FAILED))
        leases = [
            lease_of(runs[0]),
            lease_of(runs[1]),
            replace(lease_of(runs[2]), owner_id="pretender"),
            replace(lease_of(runs[2]), fence=99),
            *(replace(lease_of(runs[2]), run_id=name) for name in UNKNOWN_RUN_IDS),
            lease_of(runs[3]),
        ]
        renewals = await store.renew_leases(leases, LONG)
        lost = [False] * (2 + len(UNKNOWN_RUN_IDS))
        assert [renewal.ok for renewal in renewals] == [False, True, *lost, True]
        assert [one.run_id for one in renewals] == [lease.run_id for lease in leases]

    async def test_renewing_nothing_answers_nothing(self, store: LeasingStore) -> None:
        assert await store.renew_leases([], LONG) == []

    async def test_renewal_carries_the_cancel_request(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id)
        (before,) = await store.renew_leases([lease_of(held)], LONG)
        asked = await write(store, cancel(held))
        (after,) = await store.renew_leases([lease_of(held)], LONG)
        assert before.cancel_requested_at is None
        assert after.cancel_requested_at == asked.cancel_requested_at is not None
        assert (before.version, after.version) == (held.version, asked.version)

    async def test_renewal_does_not_disturb_the_owners_next_update(
        self, store: LeasingStore
    ) -> None:
        """Renewals are concurrent and must not make its base version stale."""
        held = await claim(store, (await create(store)).run_id)
        renewing = asyncio.gather(*(store.renew_leases([lease_of(held)], LONG) for _ in range(10)))
        await store.update_run(start_step(held))
        assert all(renewal.ok for (renewal,) in await renewing)
        assert (await store.get_run(held.run_id)).version == held.version + 1

    async def test_lease_of_an_embedded_run_is_renewed_alike(self, store: LeasingStore) -> None:
        held = await create_embedded(store, seconds=self.lease_seconds)
        (renewal,) = await store.renew_leases([lease_of(held)], LONG)
        assert renewal.ok
        await self.expire_leases()
        assert not (await store.get_run(held.run_id)).owner_lost

    async def test_worker_releases_a_lease_on_completion(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id)
        running = await write(store, start_run(held))
        ended = await write(store, end_run(running))
        await store.release_lease(held.run_id, fencing_of(held), unique("release"))
        assert await store.get_run(held.run_id) == ended
        assert (ended.owner_id, ended.lease_expires_at) == (None, None)
        assert (await store.list_runnable()).items == ()

    async def test_released_run_is_runnable_at_once(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id)
        running = await write(store, start_step(held))
        await store.release_lease(held.run_id, fencing_of(held), unique("release"))
        released = await store.get_run(held.run_id)
        assert (released.status, released.owner_id) == (RunStatus.RUNNING, None)
        assert (released.version, released.fence) == (running.version + 1, running.fence)
        assert released.lease_expires_at is None
        assert released.owner_lost
        assert released.steps == running.steps
        assert [item.run_id for item in (await store.list_runnable()).items] == [held.run_id]

    async def test_release_sent_again_changes_nothing(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id)
        update_id = unique("release")
        await store.release_lease(held.run_id, fencing_of(held), update_id)
        released = await store.get_run(held.run_id)
        await store.release_lease(held.run_id, fencing_of(held), update_id)
        assert await store.get_run(held.run_id) == released

    async def test_release_sent_again_after_the_next_claim_is_lost(
        self, store: LeasingStore
    ) -> None:
        held = await claim(store, (await create(store)).run_id, "worker-1")
        update_id = unique("release")
        await store.release_lease(held.run_id, fencing_of(held), update_id)
        taken = await claim(store, held.run_id, "worker-2")
        await refused(LeaseLost, store.release_lease(held.run_id, fencing_of(held), update_id))
        assert record_of(await store.get_run(held.run_id)) == record_of(taken)

    async def test_release_by_somebody_else_is_refused(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id, "worker-1")
        right = fencing_of(held)
        for wrong in (replace(right, owner_id="worker-2"), replace(right, fence=right.fence + 1)):
            await refused(LeaseLost, store.release_lease(held.run_id, wrong, unique("release")))
        assert record_of(await store.get_run(held.run_id)) == record_of(held)

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_release_of_an_unknown_run_is_refused(
        self, store: LeasingStore, run_id: str
    ) -> None:
        held = await claim(store, (await create(store)).run_id)
        await refused(RunNotFound, store.release_lease(run_id, fencing_of(held), unique("release")))

    async def test_writes_and_renewals_after_release_are_lost(self, store: LeasingStore) -> None:
        """Owner gone, fence unchanged: the fence alone would accept them."""
        held = await claim(store, (await create(store)).run_id)
        await store.release_lease(held.run_id, fencing_of(held), unique("release"))
        released = await store.get_run(held.run_id)
        with pytest.raises(LeaseLost):
            await store.update_run(start_run(replace(held, version=released.version)))
        (renewal,) = await store.renew_leases([lease_of(held)], LONG)
        assert not renewal.ok
        assert await store.get_run(held.run_id) == released

    async def test_release_after_an_operator_ended_the_run_is_lost(
        self, store: LeasingStore
    ) -> None:
        held = await claim(store, (await create(store)).run_id, seconds=self.lease_seconds)
        await self.expire_leases()
        ended = await write(store, operator_status(held, RunStatus.CANCELED))
        with pytest.raises(LeaseLost):
            await store.release_lease(held.run_id, fencing_of(held), unique("release"))
        assert await store.get_run(held.run_id) == ended


async def race_for(frozen: RunSnapshot, owners: LeasingStore, others: LeasingStore) -> None:
    """The old owner writes through one store while another worker claims through the other."""
    written, taken = await asyncio.gather(
        owners.update_run(finish_host(frozen, 0, "web1")),
        claim(others, frozen.run_id, "worker-2"),
        return_exceptions=True,
    )
    assert isinstance(taken, RunSnapshot)
    finished = taken.steps[0].hosts["web1"].status == HostStatus.SUCCESS
    if isinstance(written, Receipt):
        assert finished
    else:
        # The update may have been applied before, and its answer lost.
        assert isinstance(written, LeaseLost)
    assert record_of(await owners.get_run(frozen.run_id)) == record_of(taken)


class Takeovers(ContractHarness):
    """Expired leases: takeovers, and late calls of the old owner."""

    async def _started(self, store: LeasingStore) -> RunSnapshot:
        """A run whose first step was started under a short lease."""
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        return await write(store, start_step(held))

    async def _frozen(self, store: LeasingStore) -> RunSnapshot:
        """As ``_started``, with the lease expired."""
        started = await self._started(store)
        await self.expire_leases()
        return started

    async def test_lease_expiry_allows_takeover(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        taken = await claim(store, frozen.run_id, "worker-2")
        assert (taken.owner_id, taken.fence) == ("worker-2", frozen.fence + 1)
        assert taken.version == frozen.version + 1
        assert (taken.takeovers, taken.takeovers_without_progress) == (1, 1)
        assert (taken.status, taken.steps) == (RunStatus.RUNNING, frozen.steps)
        running = await write(store, finish_host(taken, 0, "web1"))
        assert running.steps[0].hosts["web1"].status == HostStatus.SUCCESS

    async def test_frozen_worker_thaws(self, store: LeasingStore) -> None:
        """Every late call is refused and leaves no trace, also the repetition of an applied intent,
        whose "ok" would start the task beside the new owner's."""
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        intent = start_step(held)
        started = await write(store, intent)
        await self.expire_leases()
        taken = await claim(store, run.run_id, "worker-2")
        for late in (
            intent,
            finish_host(started, 0, "web1"),
            change_run(started, message="still here"),
            end_run(started, RunStatus.FAILED),
        ):
            lost = await refused(LeaseLost, store.update_run(late))
            assert (lost.owner_id, lost.fence) == ("worker-2", taken.fence)
        (renewal,) = await store.renew_leases([lease_of(held)], LONG)
        assert not renewal.ok
        with pytest.raises(LeaseLost):
            await store.release_lease(run.run_id, fencing_of(held), unique("release"))
        await refused(LeaseHeld, store.claim_run(run.run_id, lease_request("worker-1")))
        assert record_of(await store.get_run(run.run_id)) == record_of(taken)

    async def test_frozen_worker_thaws_after_its_successor_finished(
        self, store: LeasingStore
    ) -> None:
        frozen = await self._frozen(store)
        taken = await claim(store, frozen.run_id, "worker-2")
        ended = await write(store, end_run(taken, RunStatus.FAILED))
        for late in (finish_host(frozen, 0, "web1"), end_run(frozen, RunStatus.FAILED)):
            await refused(LeaseLost, store.update_run(late))
        assert not (await store.renew_leases([lease_of(frozen)], LONG))[0].ok
        assert await store.get_run(frozen.run_id) == ended

    async def test_expired_lease_that_nobody_took_still_writes(self, store: LeasingStore) -> None:
        """An outage of the store loses no work."""
        frozen = await self._frozen(store)
        assert (await store.get_run(frozen.run_id)).owner_lost
        finished = await write(store, finish_host(frozen, 0, "web1"))
        assert finished.version == frozen.version + 1
        assert (await write(store, end_run(finished, RunStatus.FAILED))).status == RunStatus.FAILED

    async def test_writing_does_not_revive_an_expired_lease(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        await store.update_run(finish_host(frozen, 0, "web1"))
        assert (await claim(store, frozen.run_id, "worker-2")).takeovers == 1

    async def test_expired_lease_that_nobody_took_is_renewed(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        (renewal,) = await store.renew_leases([lease_of(frozen)], LONG)
        assert renewal.ok
        now = await store.get_run(frozen.run_id)
        assert not now.owner_lost
        assert (now.version, now.fence) == (frozen.version, frozen.fence)
        await refused(LeaseHeld, store.claim_run(frozen.run_id, lease_request("worker-2")))

    async def test_expired_lease_of_ones_own_is_taken_over_with_a_new_fence(
        self, store: LeasingStore
    ) -> None:
        frozen = await self._frozen(store)
        again = await claim(store, frozen.run_id, "worker-1")
        assert (again.fence, again.takeovers) == (frozen.fence + 1, 1)
        await refused(LeaseLost, store.update_run(finish_host(frozen)))

    async def test_one_of_many_takes_an_expired_run_over(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        answers = await asyncio.gather(
            *(
                store.claim_run(frozen.run_id, lease_request(f"worker-{number}"))
                for number in range(2, 22)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(answer, LeaseHeld) for answer in answers) == 19
        now = await store.get_run(frozen.run_id)
        assert (now.takeovers, now.fence) == (1, frozen.fence + 1)

    async def test_update_before_the_claim_is_in_the_claimed_record(
        self, store: LeasingStore
    ) -> None:
        frozen = await self._frozen(store)
        await store.update_run(finish_host(frozen, 0, "web1"))
        taken = await claim(store, frozen.run_id, "worker-2")
        assert taken.steps[0].hosts["web1"].status == HostStatus.SUCCESS

    async def test_claim_is_never_torn_by_a_late_update(self, store: LeasingStore) -> None:
        """Either the old owner's result is in the claimed record, or its write is lost; else a
        finished host would run again."""
        runs = [await self._started(store) for _ in range(10)]
        await self.expire_leases()
        for frozen in runs:
            await race_for(frozen, store, store)

    async def test_progress_ends_a_row_of_takeovers(self, store: LeasingStore) -> None:
        """A run is parked after takeovers without a finished host."""
        frozen = await self._frozen(store)
        taken = await claim(store, frozen.run_id, "worker-2", seconds=self.lease_seconds)
        await self.expire_leases()
        again = await claim(store, frozen.run_id, "worker-3")
        assert (again.takeovers, again.takeovers_without_progress) == (2, 2)
        assert again.fence == taken.fence + 1
        finished = await write(store, finish_host(again, 0, "web1"))
        assert (finished.takeovers, finished.takeovers_without_progress) == (2, 0)

    async def test_cancel_of_an_expired_run_ends_it(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        ended = await write(store, cancel(frozen))
        assert (ended.status, ended.owner_id) == (RunStatus.CANCELED, None)
        assert ended.fence == frozen.fence + 1
        await refused(LeaseLost, store.update_run(finish_host(frozen)))

    async def test_operator_may_change_the_status_of_an_expired_run(
        self, store: LeasingStore
    ) -> None:
        frozen = await self._frozen(store)
        ended = await write(store, operator_status(frozen, RunStatus.INTERRUPTED))
        assert (ended.status, ended.fence) == (RunStatus.INTERRUPTED, frozen.fence + 1)

    async def test_owner_lost_and_expiry_are_facts_of_the_moment(self, store: LeasingStore) -> None:
        started = await self._started(store)
        assert not started.owner_lost
        assert started.lease_expires_at is not None
        await self.expire_leases()
        now = await store.get_run(started.run_id)
        assert now.owner_lost
        assert (now.owner_id, now.version) == ("worker-1", started.version)
        (listed,) = (await store.list_runs()).items
        assert listed.owner_lost

    async def test_queued_run_is_never_called_lost(self, store: LeasingStore) -> None:
        run = await create(store)
        assert not run.owner_lost
        await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        assert not (await store.get_run(run.run_id)).owner_lost


class Reconciling(ContractHarness):
    """Reconcile ends runs of lost owners that do not resume or are canceled, never those of a live
    one."""

    async def test_reconcile_cannot_hit_a_live_run(self, store: LeasingStore) -> None:
        """The claim decides, not an earlier read."""
        run = await create_embedded(store, "owner-a", seconds=self.lease_seconds)
        await store.renew_leases([lease_of(run)], LONG)
        await self.expire_leases()
        await refused(LeaseHeld, _reconcile(store, run.run_id))
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
            await refused(LeaseLost, store.update_run(late))
        assert not (await store.renew_leases([lease_of(run)], LONG))[0].ok
        ended = await write(store, end_run(claimed, RunStatus.INTERRUPTED))
        await refused(LeaseLost, store.update_run(end_run(run, RunStatus.INTERRUPTED)))
        assert await store.get_run(run.run_id) == ended

    async def test_second_reconciler_finds_the_first_at_work(self, store: LeasingStore) -> None:
        """One of them ends the run, so there is one callback."""
        run = await create_embedded(store, "owner-a", seconds=self.lease_seconds)
        await self.expire_leases()
        claimed = await _reconcile(store, run.run_id, "reconciler-1")
        await refused(LeaseHeld, _reconcile(store, run.run_id, "reconciler-2"))
        await store.update_run(end_run(claimed, RunStatus.INTERRUPTED))
        await refused(NotRunnable, _reconcile(store, run.run_id, "reconciler-2"))

    async def test_reconcile_leaves_runs_that_resume_to_workers(self, store: LeasingStore) -> None:
        run = await create_embedded(store, seconds=self.lease_seconds, recovery=Recovery.RESUME)
        await self.expire_leases()
        await refused(NotRunnable, _reconcile(store, run.run_id))
        assert await store.claim_runs(_sweep()) == []
        assert (await claim(store, run.run_id, "worker-1")).takeovers == 1

    async def test_run_that_resumes_and_was_asked_to_stop_is_ended_without_a_worker(
        self, store: LeasingStore
    ) -> None:
        """The request came under a live owner, which was lost before it obeyed."""
        run = await self._asked_to_stop(store, seconds=self.lease_seconds)
        await refused(LeaseHeld, _reconcile(store, run.run_id))
        assert await store.claim_runs(_sweep()) == []
        await self.expire_leases()
        (claimed,) = await store.claim_runs(_sweep())
        assert claimed.snapshot.fence == run.fence + 1
        await refused(LeaseLost, store.update_run(start_step(run, 0)))
        ended = await write(store, end_run(claimed.snapshot, RunStatus.CANCELED))
        assert (ended.status, ended.owner_id) == ("canceled", None)

    async def test_run_to_be_canceled_is_taken_from_an_owner_proven_dead_at_once(
        self, store: LeasingStore
    ) -> None:
        """Its other runs resume and are not touched."""
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
        await refused(NotRunnable, store.claim_run(run.run_id, lease_request("worker-1")))
        assert await store.claim_runs(claim_request("worker-1", limit=5)) == []
        assert (await store.list_runnable()).items == ()

    async def test_queued_run_that_waits_for_its_first_owner_is_not_reconciled(
        self, store: LeasingStore
    ) -> None:
        run = await create(store, recovery=Recovery.INTERRUPT)
        await refused(NotRunnable, _reconcile(store, run.run_id))
        assert await store.claim_runs(_sweep()) == []

    async def test_sweep_finds_every_run_whose_owner_is_gone(self, store: LeasingStore) -> None:
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
        await refused(RunNotFound, _reconcile(store, "never-created"))


def _sweep() -> ClaimRequest:
    return claim_request("reconciler", limit=10, purpose=Purpose.RECONCILE)


async def _reconcile(store: LeasingStore, run_id: str, owner_id: str = "reconciler") -> RunSnapshot:
    claimed = await store.claim_run(run_id, lease_request(owner_id), Purpose.RECONCILE)
    return claimed.snapshot


T = TypeVar("T")

_TIMEOUT_S = 20.0


class KeptApartContract(ContractHarness):
    """``KeptApart``: leases are renewed while the event loop is blocked."""

    async def test_store_keeps_apart(self, store: ApartKeptStore) -> None:
        assert isinstance(store, KeptApart)

    async def test_lease_is_renewed_while_the_loop_is_held_up(self, store: ApartKeptStore) -> None:
        run = await create_embedded(store, "owner-a", seconds=60)
        (renewal,) = _held_up(store, lambda line: line.renew_leases([lease_of(run)], 600))
        assert renewal.ok
        assert run.lease_expires_at is not None
        assert renewal.expires_at is not None
        assert renewal.expires_at > run.lease_expires_at
        assert (await store.get_run(run.run_id)).lease_expires_at == renewal.expires_at

    async def test_owner_goes_on_writing_after_that(self, store: ApartKeptStore) -> None:
        run = await create_embedded(store, "owner-a")
        _held_up(store, lambda line: line.renew_leases([lease_of(run)], 600))
        run = await write(store, start_step(run))
        _held_up(store, lambda line: line.renew_leases([lease_of(run)], 600))
        run = await write(store, end_run(run, RunStatus.FAILED))
        assert run.ended

    async def test_lost_lease_is_told(self, store: ApartKeptStore) -> None:
        run = await create_embedded(store, "owner-a")
        await write(store, end_run(run, RunStatus.FAILED))
        (renewal,) = _held_up(store, lambda line: line.renew_leases([lease_of(run)], 600))
        assert not renewal.ok

    async def test_requests_are_seen(self, store: ApartKeptStore) -> None:
        run = await create_embedded(store, "owner-a", **AT_BIRTH)
        run = await write(store, cancel(run))
        page = _held_up(store, lambda line: line.list_runs(RunFilter(owner_id="owner-a")))
        assert page.items == (summarize(run),)
        assert page.items[0].cancel_requested_at is not None


def _held_up(store: KeptApart, ask: Callable[[LeaseKeeping], Awaitable[T]]) -> T:
    """The answer to another thread while this event loop is blocked."""
    answers: list[T] = []

    async def keep() -> None:
        async with store.keeping() as line:
            answers.append(await ask(line))

    thread = Thread(target=lambda: asyncio.run(keep()), daemon=True)
    thread.start()
    thread.join(_TIMEOUT_S)
    (answer,) = answers
    return answer


class LeaseStoreContract(
    Claims,
    ClaimsInBatches,
    ClaimOrder,
    Renewals,
    Takeovers,
    Reconciling,
    RunnableDiscovery,
    WholeClaims,
):
    """``LeaseStore``: claim, renew, release, list."""

    async def test_store_is_a_lease_store(self, store: LeasingStore) -> None:
        assert isinstance(store, LeaseStore)
