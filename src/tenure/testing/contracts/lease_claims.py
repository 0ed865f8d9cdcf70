"""One run, many who want it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenure.model.errors import LeaseHeld, LeaseLost, NotRunnable, RunNotFound
from tenure.model.snapshot import Approval
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, RunChange, StepChange
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    at_once,
    claim,
    create,
    create_embedded,
    record_of,
    write,
)
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import (
    approve,
    claim_request,
    embedded_run,
    end_run,
    fencing_of,
    finish_host,
    lease_request,
    operator_status,
    owner_update,
    planned_steps,
    start_run,
    start_step,
    unique,
)


class Claims(ContractHarness):
    async def test_claimed_snapshot_shares_nothing_with_the_store(
        self, store: LeasingStore
    ) -> None:
        """Not even with what the store remembers for the owner's next write."""
        first = await claim(store, (await create(store)).run_id, "worker-1", seconds=0)
        progress = HostChange(status=HostStatus.RUNNING, vars={"kept": "yes"})
        changes = Changes(
            run=RunChange(status=RunStatus.RUNNING),
            steps={0: StepChange(status=StepStatus.RUNNING, hosts={"web1": progress})},
        )
        await store.update_run(owner_update(first, changes))
        await self.pass_time(self.lease_seconds)
        taken = await claim(store, first.run_id, "worker-2")
        taken.steps[0].hosts["web1"].vars["kept"] = "overwritten"
        await store.update_run(finish_host(taken))
        now = await store.get_run(first.run_id)
        assert now.steps[0].hosts["web1"].vars == {"kept": "yes"}

    async def test_lease_belongs_to_its_newest_claim(self, store: LeasingStore) -> None:
        """Also when the newer claim does not make it longer."""
        run = await create(store)
        await store.claim_run(run.run_id, lease_request("worker-1", seconds=600, claim_id="k1"))
        await store.claim_run(run.run_id, lease_request("worker-1", seconds=5, claim_id="k2"))
        again = await store.claim_runs(claim_request("worker-1", claim_id="k2"))
        assert [one.snapshot.run_id for one in again] == [run.run_id]
        assert await store.claim_runs(claim_request("worker-1", claim_id="k1")) == []

    async def test_worker_claims_a_run_exclusively(self, store: LeasingStore) -> None:
        run = await create(store)
        await store.claim_run(run.run_id, lease_request("worker-1"))
        with pytest.raises(LeaseHeld) as held:
            await store.claim_run(run.run_id, lease_request("worker-2"))
        assert held.value.owner_id == "worker-1"
        assert held.value.expires_at is not None
        assert (await store.get_run(run.run_id)).owner_id == "worker-1"

    async def test_claim_raises_fence_and_version(self, store: LeasingStore) -> None:
        run = await create(store)
        claimed = await store.claim_run(run.run_id, lease_request("worker-1"))
        assert (claimed.snapshot.fence, claimed.snapshot.version) == (1, 2)
        lease = claimed.lease
        assert (lease.run_id, lease.owner_id, lease.fence) == (run.run_id, "worker-1", 1)
        now = await store.get_run(run.run_id)
        assert record_of(now) == record_of(claimed.snapshot)
        assert (now.status, now.owner_lost, now.takeovers) == (RunStatus.QUEUED, False, 0)
        assert now.updated_at is not None
        assert run.updated_at is not None
        assert now.updated_at >= run.updated_at

    async def test_lease_lasts_as_long_as_was_asked(self, store: LeasingStore) -> None:
        long, short = await create(store), await create(store)
        first = await store.claim_run(long.run_id, lease_request(seconds=1000))
        second = await store.claim_run(short.run_id, lease_request(seconds=500))
        apart = first.lease.expires_at - second.lease.expires_at
        assert timedelta(seconds=400) < apart <= timedelta(seconds=500)
        assert first.lease.expires_at > (first.snapshot.updated_at or first.lease.expires_at)

    async def test_lease_given_at_creation_tells_when_it_ends(self, store: LeasingStore) -> None:
        new = embedded_run("owner-a")
        receipt = await store.create_run(new)
        run = await store.get_run(new.snapshot.run_id)
        assert receipt.lease_expires_at == run.lease_expires_at is not None
        with pytest.raises(LeaseHeld) as held:
            await store.update_run(operator_status(run, RunStatus.FAILED))
        assert held.value.expires_at == run.lease_expires_at
        written = await store.update_run(start_step(run))
        assert written.lease_expires_at == run.lease_expires_at

    async def test_one_of_many_claimers_wins(self, store: LeasingStore) -> None:
        run = await create(store)
        won, errors = await at_once(
            store.claim_run(run.run_id, lease_request(f"worker-{number}")) for number in range(20)
        )
        assert len(won) == 1
        assert [type(error) for error in errors] == [LeaseHeld] * 19
        now = await store.get_run(run.run_id)
        assert (now.fence, now.version) == (1, 2)
        assert now.owner_id == won[0].lease.owner_id

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_claim_of_an_unknown_run_is_refused(
        self, store: LeasingStore, run_id: str
    ) -> None:
        with pytest.raises(RunNotFound):
            await store.claim_run(run_id, lease_request())

    @pytest.mark.parametrize("status", ["success", "failed", "canceled", "interrupted"])
    async def test_ended_run_cannot_be_claimed(self, store: LeasingStore, status: str) -> None:
        ended = await write(store, end_run(await create_embedded(store), RunStatus(status)))
        with pytest.raises(NotRunnable):
            await store.claim_run(ended.run_id, lease_request("worker-2"))
        assert await store.get_run(ended.run_id) == ended

    async def test_run_waiting_for_approval_cannot_be_claimed(self, store: LeasingStore) -> None:
        run = await create(store, approval=Approval(required=True))
        with pytest.raises(NotRunnable):
            await store.claim_run(run.run_id, lease_request())
        await store.update_run(approve(run))
        assert (await claim(store, run.run_id)).fence == 1

    async def test_run_waiting_for_its_time_cannot_be_claimed(self, store: LeasingStore) -> None:
        now = (await create(store)).created_at
        assert now is not None
        later = now + timedelta(seconds=self.lease_seconds)
        run = await create(store, run_after=later)
        with pytest.raises(NotRunnable):
            await store.claim_run(run.run_id, lease_request())
        await self.expire_leases()
        assert (await claim(store, run.run_id)).fence == 1

    async def test_live_lease_is_named_before_other_hindrances(self, store: LeasingStore) -> None:
        """An embedded run does not resume, but that is not why it cannot be had now."""
        run = await create_embedded(store)
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-2"))

    async def test_unowned_running_run_that_does_not_resume_is_not_runnable(
        self, store: LeasingStore
    ) -> None:
        run = await create_embedded(store, recovery=Recovery.INTERRUPT)
        await store.update_run(owner_update(run, Changes(), release=True))
        with pytest.raises(NotRunnable):
            await store.claim_run(run.run_id, lease_request("worker-2"))

    async def test_refused_claim_leaves_no_trace(self, store: LeasingStore) -> None:
        run = await create(store, approval=Approval(required=True))
        with pytest.raises(NotRunnable):
            await store.claim_run(run.run_id, lease_request())
        assert await store.get_run(run.run_id) == run

    async def test_claiming_what_one_holds_renews_it_at_the_same_fence(
        self, store: LeasingStore
    ) -> None:
        run = await create(store)
        first = await store.claim_run(run.run_id, lease_request("worker-1", seconds=600))
        again = await store.claim_run(run.run_id, lease_request("worker-1", seconds=1200))
        assert again.lease.fence == first.lease.fence
        assert again.lease.expires_at > first.lease.expires_at
        assert record_of(again.snapshot) == record_of(first.snapshot)

    async def test_claim_sent_again_returns_what_the_first_one_got(
        self, store: LeasingStore
    ) -> None:
        run = await create(store)
        request = lease_request("worker-1")
        first = await store.claim_run(run.run_id, request)
        again = await store.claim_run(run.run_id, request)
        assert again.lease.fence == first.lease.fence
        assert (await store.get_run(run.run_id)).version == first.snapshot.version

    async def test_claim_sent_again_renews_what_is_still_held(self, store: LeasingStore) -> None:
        """Its sender counts the lease from now on; nobody took it meanwhile."""
        run = await create(store)
        request = lease_request("worker-1", seconds=self.lease_seconds)
        first = await store.claim_run(run.run_id, request)
        await self.expire_leases()
        again = await store.claim_run(run.run_id, request)
        assert again.lease.fence == first.lease.fence
        assert again.lease.expires_at > first.lease.expires_at
        assert (again.snapshot.version, again.snapshot.takeovers) == (first.snapshot.version, 0)
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-2"))

    async def test_expired_lease_may_be_left_alone(self, store: LeasingStore) -> None:
        """A process that just started must not take what its owner may come back for."""
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-2", expired=False))
        assert record_of(await store.get_run(run.run_id)) == record_of(held)
        fresh = await create(store)
        careful = await store.claim_run(fresh.run_id, lease_request("worker-2", expired=False))
        assert careful.lease.fence == 1

    async def test_claimed_record_shares_nothing_with_the_store(self, store: LeasingStore) -> None:
        run = await create(store, labels={"team": "web"})
        request = lease_request()
        claimed = await store.claim_run(run.run_id, request)
        claimed.snapshot.labels.clear()
        claimed.snapshot.steps[0].hosts.clear()
        again = (await store.claim_run(run.run_id, request)).snapshot
        assert (again.labels, again.steps) == ({"team": "web"}, planned_steps())

    async def test_one_claim_sent_many_times_at_once_claims_once(self, store: LeasingStore) -> None:
        run = await create(store)
        request = lease_request("worker-1")
        claims, errors = await at_once(store.claim_run(run.run_id, request) for _ in range(20))
        assert not errors
        assert {claimed.lease.fence for claimed in claims} == {1}
        assert (await store.get_run(run.run_id)).version == 2

    async def test_claim_sent_again_after_the_run_was_lost_gets_nothing(
        self, store: LeasingStore
    ) -> None:
        run = await create(store)
        request = lease_request("worker-1", seconds=self.lease_seconds)
        await store.claim_run(run.run_id, request)
        await self.expire_leases()
        await claim(store, run.run_id, "worker-2")
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, request)

    async def test_release_and_claim_again_gives_a_new_fence(self, store: LeasingStore) -> None:
        """The same owner, but what it sent under the older fence is lost."""
        run = await create(store)
        older = await claim(store, run.run_id, "worker-1")
        await store.release_lease(run.run_id, fencing_of(older), unique("release"))
        newer = await claim(store, run.run_id, "worker-1")
        assert newer.fence == older.fence + 1
        with pytest.raises(LeaseLost):
            await store.update_run(start_run(replace(older, version=newer.version)))
        assert (await write(store, start_run(newer))).status == RunStatus.RUNNING

    async def test_picking_up_a_released_run_is_no_takeover(self, store: LeasingStore) -> None:
        run = await create(store)
        older = await claim(store, run.run_id, "worker-1")
        await store.release_lease(run.run_id, fencing_of(older), unique("release"))
        assert (await claim(store, run.run_id, "worker-2")).takeovers == 0

    async def test_operators_applied_status_change_sent_again_under_a_new_owner(
        self, store: LeasingStore
    ) -> None:
        """Repetition is asked before the live lease: the change did happen."""
        run = await create(store)
        started = operator_status(run, RunStatus.RUNNING, base_version=run.version)
        assert (await store.update_run(started)).version == 2
        claimed = await claim(store, run.run_id, "worker-1")
        assert (await store.update_run(started)).version == 2
        assert record_of(await store.get_run(run.run_id)) == record_of(claimed)
