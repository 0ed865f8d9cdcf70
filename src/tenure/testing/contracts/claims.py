"""Claims, claim order, ``Beginnings``, and lists of claimable runs."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenure.model.errors import (
    InvalidCursor,
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    RunNotFound,
    StoreRejected,
    VersionConflict,
)
from tenure.model.leases import ClaimedRun
from tenure.model.query import RunFilter
from tenure.model.snapshot import Approval, RunSummary, summarize
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, RunChange, StepChange
from tenure.ports.store import Beginnings
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    at_once,
    claim,
    create,
    create_embedded,
    pages,
    record_of,
    refused,
    write,
)
from tenure.testing.contracts.harness import BeginningStore, ContractHarness, LeasingStore
from tenure.testing.contracts.run_records import ASKS_IN_TIME, AT_BIRTH
from tenure.testing.factories import (
    CHATTY,
    annotate,
    approve,
    begin_run,
    cancel,
    claim_request,
    embedded_run,
    end_run,
    fencing_of,
    finish_host,
    lease_request,
    new_run,
    operator_status,
    owner_update,
    planned_steps,
    start_run,
    start_step,
    unique,
)


class Claims(ContractHarness):
    """Claims of one run."""

    async def test_claimed_snapshot_shares_nothing_with_the_store(
        self, store: LeasingStore
    ) -> None:
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
        run = await create(store)
        await store.claim_run(run.run_id, lease_request("worker-1", seconds=600, claim_id="k1"))
        await store.claim_run(run.run_id, lease_request("worker-1", seconds=5, claim_id="k2"))
        again = await store.claim_runs(claim_request("worker-1", claim_id="k2"))
        assert [one.snapshot.run_id for one in again] == [run.run_id]
        assert await store.claim_runs(claim_request("worker-1", claim_id="k1")) == []

    async def test_worker_claims_a_run_exclusively(self, store: LeasingStore) -> None:
        run = await create(store)
        await store.claim_run(run.run_id, lease_request("worker-1"))
        held = await refused(LeaseHeld, store.claim_run(run.run_id, lease_request("worker-2")))
        assert held.owner_id == "worker-1"
        assert held.expires_at is not None
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
        held = await refused(LeaseHeld, store.update_run(operator_status(run, RunStatus.FAILED)))
        assert held.expires_at == run.lease_expires_at
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
        await refused(RunNotFound, store.claim_run(run_id, lease_request()))

    @pytest.mark.parametrize("status", ["success", "failed", "canceled", "interrupted"])
    async def test_ended_run_cannot_be_claimed(self, store: LeasingStore, status: str) -> None:
        ended = await write(store, end_run(await create_embedded(store), RunStatus(status)))
        await refused(NotRunnable, store.claim_run(ended.run_id, lease_request("worker-2")))
        assert await store.get_run(ended.run_id) == ended

    async def test_run_waiting_for_approval_cannot_be_claimed(self, store: LeasingStore) -> None:
        run = await create(store, approval=Approval(required=True))
        await refused(NotRunnable, store.claim_run(run.run_id, lease_request()))
        await store.update_run(approve(run))
        assert (await claim(store, run.run_id)).fence == 1

    async def test_run_waiting_for_its_time_cannot_be_claimed(self, store: LeasingStore) -> None:
        now = (await create(store)).created_at
        assert now is not None
        later = now + timedelta(seconds=self.lease_seconds)
        run = await create(store, run_after=later)
        await refused(NotRunnable, store.claim_run(run.run_id, lease_request()))
        await self.expire_leases()
        assert (await claim(store, run.run_id)).fence == 1

    async def test_live_lease_is_named_before_other_hindrances(self, store: LeasingStore) -> None:
        """Not that the embedded run does not resume."""
        run = await create_embedded(store)
        await refused(LeaseHeld, store.claim_run(run.run_id, lease_request("worker-2")))

    async def test_unowned_running_run_that_does_not_resume_is_not_runnable(
        self, store: LeasingStore
    ) -> None:
        run = await create_embedded(store, recovery=Recovery.INTERRUPT)
        await store.update_run(owner_update(run, Changes(), release=True))
        await refused(NotRunnable, store.claim_run(run.run_id, lease_request("worker-2")))

    async def test_refused_claim_leaves_no_trace(self, store: LeasingStore) -> None:
        run = await create(store, approval=Approval(required=True))
        await refused(NotRunnable, store.claim_run(run.run_id, lease_request()))
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
        """The caller counts its lease from the repetition."""
        run = await create(store)
        request = lease_request("worker-1", seconds=self.lease_seconds)
        first = await store.claim_run(run.run_id, request)
        await self.expire_leases()
        again = await store.claim_run(run.run_id, request)
        assert again.lease.fence == first.lease.fence
        assert again.lease.expires_at > first.lease.expires_at
        assert (again.snapshot.version, again.snapshot.takeovers) == (first.snapshot.version, 0)
        await refused(LeaseHeld, store.claim_run(run.run_id, lease_request("worker-2")))

    async def test_expired_lease_may_be_left_alone(self, store: LeasingStore) -> None:
        """After a start, when the owner may only be waiting to come back."""
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
        await refused(LeaseHeld, store.claim_run(run.run_id, request))

    async def test_release_and_claim_again_gives_a_new_fence(self, store: LeasingStore) -> None:
        older = await claim(store, (await create(store)).run_id, "worker-1")
        await store.release_lease(older.run_id, fencing_of(older), unique("release"))
        newer = await claim(store, older.run_id, "worker-1")
        assert newer.fence == older.fence + 1
        await refused(LeaseLost, store.update_run(start_run(replace(older, version=newer.version))))
        assert (await write(store, start_run(newer))).status == RunStatus.RUNNING

    async def test_picking_up_a_released_run_is_no_takeover(self, store: LeasingStore) -> None:
        older = await claim(store, (await create(store)).run_id, "worker-1")
        await store.release_lease(older.run_id, fencing_of(older), unique("release"))
        assert (await claim(store, older.run_id, "worker-2")).takeovers == 0

    async def test_operators_applied_status_change_sent_again_under_a_new_owner(
        self, store: LeasingStore
    ) -> None:
        """Repetition is checked before the live lease."""
        run = await create(store)
        started = operator_status(run, RunStatus.RUNNING, base_version=run.version)
        assert (await store.update_run(started)).version == 2
        claimed = await claim(store, run.run_id, "worker-1")
        assert (await store.update_run(started)).version == 2
        assert record_of(await store.get_run(run.run_id)) == record_of(claimed)


class ClaimsInBatches(ContractHarness):
    async def test_multiple_workers_share_a_workflow_store(self, store: LeasingStore) -> None:
        run_ids = {(await create(store)).run_id for _ in range(2)}
        for _ in ("worker-1", "worker-2"):
            assert {item.run_id for item in (await store.list_runnable()).items} == run_ids
        (first,) = await store.claim_runs(claim_request("worker-1", limit=1))
        (second,) = await store.claim_runs(claim_request("worker-2", limit=10))
        assert {first.lease.run_id, second.lease.run_id} == run_ids

    async def test_claim_runs_gives_up_to_limit_with_lease_and_record(
        self, store: LeasingStore
    ) -> None:
        runs = [await create(store, vars={"n": number}) for number in range(3)]
        claimed = await store.claim_runs(claim_request("worker-1", limit=2))
        assert [one.lease.run_id for one in claimed] == [run.run_id for run in runs[:2]]
        for one in claimed:
            assert (one.lease.owner_id, one.lease.fence) == ("worker-1", 1)
            assert (one.snapshot.version, one.snapshot.takeovers) == (2, 0)
            assert record_of(await store.get_run(one.lease.run_id)) == record_of(one.snapshot)

    async def test_digest_that_comes_with_a_claim_stands_for_one_definition(
        self, store: LeasingStore
    ) -> None:
        """``None`` from a store without digests: each definition is then read."""
        texts = ("one", "two", "one", None)
        runs = {(await create(store, definition=text)).run_id: text for text in texts}
        claimed = await store.claim_runs(claim_request("worker-1", limit=4))
        told = {(runs[one.lease.run_id], one.definition_digest) for one in claimed}
        assert (None, None) in told
        digests = [digest for _, digest in told if digest is not None]
        assert len(digests) in (0, len(set(texts)) - 1)
        assert len(digests) == len(set(digests))

    async def test_nothing_to_claim_is_an_empty_answer(self, store: LeasingStore) -> None:
        await create(store, approval=Approval(required=True))
        assert await store.claim_runs(claim_request(limit=5)) == []

    async def test_many_claimers_never_get_the_same_run(self, store: LeasingStore) -> None:
        run_ids = {(await create(store)).run_id for _ in range(50)}
        rounds = [
            store.claim_runs(claim_request(f"worker-{number % 4}", limit=7)) for number in range(20)
        ]
        claims = [one for answer in await asyncio.gather(*rounds) for one in answer]
        handed_out = [one.lease.run_id for one in claims]
        assert len(handed_out) == len(set(handed_out))
        # Concurrent claims may get less than their limit.
        claims += await _claim_all(store)
        assert sorted(one.lease.run_id for one in claims) == sorted(run_ids)
        assert {one.lease.fence for one in claims} == {1}

    async def test_batch_claim_sent_again_returns_the_same_runs_and_no_others(
        self, store: LeasingStore
    ) -> None:
        for _ in range(5):
            await create(store)
        request = claim_request("worker-1", limit=2)
        first = await store.claim_runs(request)
        again = await store.claim_runs(request)
        assert _ids(again) == _ids(first)
        assert {one.lease.fence for one in again} == {1}
        assert len((await store.list_runnable()).items) == 3

    async def test_batch_claim_sent_again_renews_what_is_still_held(
        self, store: LeasingStore
    ) -> None:
        await create(store)
        request = claim_request("worker-1", seconds=self.lease_seconds)
        (first,) = await store.claim_runs(request)
        await self.expire_leases()
        (again,) = await store.claim_runs(request)
        assert again.lease.fence == first.lease.fence
        assert again.lease.expires_at > first.lease.expires_at
        assert await store.claim_runs(claim_request("worker-2")) == []

    async def test_batch_claim_sent_again_returns_only_what_is_still_held(
        self, store: LeasingStore
    ) -> None:
        for _ in range(5):
            await create(store)
        request = claim_request("worker-1", limit=3)
        ended, released, kept = await store.claim_runs(request)
        await store.update_run(end_run(ended.snapshot, RunStatus.FAILED))
        await store.release_lease(
            released.lease.run_id, fencing_of(released.snapshot), unique("release")
        )
        again = await store.claim_runs(request)
        assert _ids(again) == [kept.lease.run_id]

    async def test_batch_claim_sent_again_returns_the_record_as_it_is_now(
        self, store: LeasingStore
    ) -> None:
        run = await create(store)
        request = claim_request("worker-1")
        await store.claim_runs(request)
        await store.update_run(annotate(run, found="later"))
        (again,) = await store.claim_runs(request)
        assert len(again.snapshot.annotations) == 1

    async def test_only_the_given_queues_are_claimed(self, store: LeasingStore) -> None:
        wanted = {(await create(store, queue=name)).run_id for name in ("gpu", "cpu")}
        await create(store, queue="other")
        await create(store)
        claimed = await store.claim_runs(claim_request(limit=10, queues=("gpu", "cpu")))
        assert set(_ids(claimed)) == wanted
        assert await store.claim_runs(claim_request(limit=10, queues=())) == []

    async def test_what_is_not_runnable_is_left_alone(self, store: LeasingStore) -> None:
        now = (await create(store, queue="elsewhere")).created_at
        assert now is not None
        await create(store, approval=Approval(required=True))
        await create(store, run_after=now + timedelta(hours=1))
        await create_embedded(store, "worker-2", recovery=Recovery.RESUME)
        held = await create(store)
        await claim(store, held.run_id, "worker-2")
        runnable = await create(store)
        claimed = await store.claim_runs(claim_request("worker-1", limit=10))
        assert _ids(claimed) == [runnable.run_id]

    async def test_own_live_runs_are_not_handed_out_again(self, store: LeasingStore) -> None:
        await create(store)
        assert len(await store.claim_runs(claim_request("worker-1", limit=5))) == 1
        assert await store.claim_runs(claim_request("worker-1", limit=5)) == []

    async def test_expired_leases_are_claimed_and_count_as_takeover(
        self, store: LeasingStore
    ) -> None:
        run = await create(store)
        await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        (taken,) = await store.claim_runs(claim_request("worker-2"))
        assert (taken.snapshot.fence, taken.snapshot.takeovers) == (2, 1)

    async def test_expired_leases_may_be_left_alone(self, store: LeasingStore) -> None:
        expired, fresh = await create(store), await create(store)
        await claim(store, expired.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        careful = await store.claim_runs(claim_request("worker-2", limit=5, expired=False))
        assert _ids(careful) == [fresh.run_id]
        bold = await store.claim_runs(claim_request("worker-2", limit=5, expired=True))
        assert _ids(bold) == [expired.run_id]

    async def test_those_left_alone_keep_nothing_else_from_being_claimed(
        self, store: LeasingStore
    ) -> None:
        for _ in range(3):
            run = await create(store, priority=5)
            await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        fresh = await create(store)
        await self.expire_leases()
        careful = await store.claim_runs(claim_request("worker-2", limit=2, expired=False))
        assert _ids(careful) == [fresh.run_id]

    async def test_lease_of_an_owner_proven_dead_counts_as_ended(self, store: LeasingStore) -> None:
        dead, alive = await create(store), await create(store)
        await claim(store, dead.run_id, "worker-dead")
        await claim(store, alive.run_id, "worker-alive")
        claimed = await store.claim_runs(
            claim_request(
                "worker-2", limit=5, expired=False, dead_owners=frozenset({"worker-dead"})
            )
        )
        assert _ids(claimed) == [dead.run_id]
        assert (claimed[0].snapshot.fence, claimed[0].snapshot.takeovers) == (2, 1)


async def _claim_all(store: LeasingStore) -> list[ClaimedRun]:
    claims: list[ClaimedRun] = []
    while answer := await store.claim_runs(claim_request("worker-last", limit=100)):
        claims += answer
    return claims


def _ids(claims: list[ClaimedRun]) -> list[str]:
    return [one.lease.run_id for one in claims]


class ClaimOrder(ContractHarness):
    """Priority, then age; no run starves."""

    async def test_higher_priority_is_claimed_first_then_older(self, store: LeasingStore) -> None:
        priorities = [0, 100, -100, 100, 0]
        runs = [await create(store, priority=priority) for priority in priorities]
        claimed = await store.claim_runs(claim_request(limit=5))
        assert [one.lease.run_id for one in claimed] == [
            runs[index].run_id for index in (1, 3, 0, 4, 2)
        ]

    async def test_order_holds_over_several_queues(self, store: LeasingStore) -> None:
        low = await create(store, queue="gpu", priority=1)
        high = await create(store, queue="cpu", priority=2)
        claimed = await store.claim_runs(claim_request(limit=2, queues=("gpu", "cpu")))
        assert [one.lease.run_id for one in claimed] == [high.run_id, low.run_id]

    async def test_oldest_run_is_among_ten_claimed_one_by_one(self, store: LeasingStore) -> None:
        old = await _old_run_behind_thirty_urgent_ones(store)
        claimed = []
        for _ in range(10):
            claimed += await store.claim_runs(claim_request(limit=1))
        assert old in [one.lease.run_id for one in claimed]

    async def test_oldest_run_is_among_ten_claimed_in_one_batch(self, store: LeasingStore) -> None:
        old = await _old_run_behind_thirty_urgent_ones(store)
        claimed = await store.claim_runs(claim_request(limit=10))
        assert len(claimed) == 10
        assert old in [one.lease.run_id for one in claimed]

    async def test_only_every_tenth_claim_disregards_priority(self, store: LeasingStore) -> None:
        old = {(await create(store, priority=-50)).run_id for _ in range(10)}
        for _ in range(30):
            await create(store, priority=50)
        claimed = []
        for _ in range(10):
            claimed += await store.claim_runs(claim_request(limit=2))
        assert len([one for one in claimed if one.lease.run_id in old]) == 2


async def _old_run_behind_thirty_urgent_ones(store: LeasingStore) -> str:
    old = await create(store, priority=-100)
    for _ in range(30):
        await create(store, priority=100)
    return old.run_id


class BeginningsContract(ContractHarness):
    """``Beginnings``: claim and start in one write, or neither."""

    async def test_store_begins_runs(self, store: BeginningStore) -> None:
        assert isinstance(store, Beginnings)

    async def test_waiting_runs_are_those_a_claim_would_get_in_its_order(
        self, store: BeginningStore
    ) -> None:
        low, high = await create(store, priority=-5), await create(store, priority=5)
        other, _ = await create(store, queue="reports"), await create(store, queue="nobodys")
        await claim(store, (await create(store)).run_id)
        await create(store, approval=Approval(required=True))
        at = low.created_at
        assert at is not None
        await create(store, run_after=at + timedelta(days=1))
        await write(store, cancel(await create(store)))
        found = await store.find_waiting(["default", "reports"], limit=10)
        assert [one.snapshot.run_id for one in found] == [high.run_id, other.run_id, low.run_id]
        assert [one.snapshot for one in await store.find_waiting(["default"], limit=1)] == [high]
        assert await store.find_waiting(["empty"], limit=10) == []

    async def test_waiting_run_is_found_with_its_whole_record(self, store: BeginningStore) -> None:
        run = await create(store, approval=ASKS_IN_TIME, **AT_BIRTH)
        await write(store, approve(run, note="as agreed"))
        run = await write(store, annotate(run, ticket=4711))
        (found,) = await store.find_waiting([run.queue], limit=2)
        assert found.snapshot == run

    async def test_looking_changes_nothing(self, store: BeginningStore) -> None:
        run = await create(store)
        (found,) = await store.find_waiting(["default"], limit=2)
        assert found.snapshot == run
        assert await store.get_run(run.run_id) == run
        (claimed,) = await store.claim_runs(claim_request())
        assert claimed.definition_digest == found.definition_digest

    async def test_what_is_found_shares_nothing_with_the_store(self, store: BeginningStore) -> None:
        run = await create(store, labels={"team": "web"})
        (found,) = await store.find_waiting(["default"], limit=2)
        changed = found.snapshot
        beginning = begin_run(run)
        changed.labels["team"] = "overwritten"
        changed.steps[0].hosts["web1"].vars["kept"] = "overwritten"
        changed.steps[0].hosts.clear()
        changed.counts.steps[StepStatus.FAILED] = 7
        await store.begin_run(beginning)
        now = await store.get_run(run.run_id)
        assert now.labels == {"team": "web"}
        assert now.steps[0].hosts["web1"].vars == {}
        assert len(now.steps[0].hosts) == len(run.steps[0].hosts)
        assert StepStatus.FAILED not in now.counts.steps

    async def test_what_was_given_back_waits_as_it_stands(self, store: BeginningStore) -> None:
        run = await write(store, start_step(await claim(store, (await create(store)).run_id)))
        await store.release_lease(run.run_id, fencing_of(run), unique("release"))
        (found,) = await store.find_waiting(["default"], limit=2)
        assert found.snapshot.status is RunStatus.RUNNING
        assert found.snapshot.steps == (await store.get_run(run.run_id)).steps == run.steps
        await refused(NotRunnable, store.begin_run(begin_run(found.snapshot)))

    async def test_claim_and_first_changes_are_one_version(self, store: BeginningStore) -> None:
        await create(store)
        (found,) = await store.find_waiting(["default"], limit=2)
        receipt = await store.begin_run(begin_run(found.snapshot, "worker-1"))
        run = await store.get_run(found.snapshot.run_id)
        assert (run.version, run.fence, run.owner_id) == (2, 1, "worker-1")
        assert (run.status, run.steps[0].status) == (RunStatus.RUNNING, StepStatus.RUNNING)
        assert run.steps[0].hosts["web1"].status is HostStatus.RUNNING
        assert run.started_at == run.updated_at == receipt.updated_at
        assert (receipt.version, receipt.fence, receipt.status) == (2, 1, RunStatus.RUNNING)
        assert run.lease_expires_at is not None
        assert receipt.lease_expires_at is not None
        assert receipt.lease_expires_at <= run.lease_expires_at
        assert not run.owner_lost
        assert run.takeovers == 0
        assert await store.find_waiting(["default"], limit=2) == []

    async def test_journal_says_whose_it_is_and_then_what_starts(
        self, store: BeginningStore
    ) -> None:
        run = await create(store)
        await store.begin_run(begin_run(run, "worker-1"))
        events = [event for event in await store.read_events(run.run_id) if event.version == 2]
        kinds = [event.type for event in events]
        assert kinds[:3] == ["lease.claimed", "run.running", "step.running"]
        assert set(kinds[3:]) == {"host.running"}
        assert events[0].data == {"owner_id": "worker-1", "fence": 1, "purpose": "execute"}
        assert {event.fence for event in events} == {1}

    async def test_callbacks_tell_of_what_they_were_made_for(self, store: BeginningStore) -> None:
        run = await create(store, callbacks=(CHATTY,))
        await store.begin_run(begin_run(run))
        told = (await store.list_deliveries(run_id=run.run_id)).items
        newest = sorted(each.event.type for each in told if each.event.version == 2)
        assert newest == ["host.running", "host.running", "run.running", "step.running"]

    async def test_its_owner_goes_on_from_there(self, store: BeginningStore) -> None:
        seen = await create(store)
        await store.begin_run(begin_run(seen, "worker-1"))
        run = await store.get_run(seen.run_id)
        done = await write(store, finish_host(run))
        assert done.steps[0].hosts["web1"].status is HostStatus.SUCCESS
        await refused(LeaseLost, store.update_run(finish_host(seen, host="web2")))

    async def test_one_of_many_begins_it(self, store: BeginningStore) -> None:
        run = await create(store)
        wanted = [begin_run(run, f"worker-{number}") for number in range(8)]
        begun, errors = await at_once(store.begin_run(each) for each in wanted)
        assert len(begun) == 1
        assert all(isinstance(error, LeaseHeld | VersionConflict) for error in errors)
        now = await store.get_run(run.run_id)
        assert (now.version, now.fence) == (2, 1)

    async def test_sent_again_it_is_answered_as_before(self, store: BeginningStore) -> None:
        run = await create(store)
        beginning = begin_run(run, "worker-1")
        first = await store.begin_run(beginning)
        begun = await store.get_run(run.run_id)
        again = await store.begin_run(beginning)
        assert (again.version, again.fence) == (first.version, first.fence)
        assert again.lease_expires_at is not None
        assert record_of(await store.get_run(run.run_id)) == record_of(begun)
        await write(store, finish_host(begun))
        assert (await store.begin_run(beginning)).version == first.version

    async def test_sent_again_when_another_has_the_run_it_is_lost(
        self, store: BeginningStore
    ) -> None:
        run = await create(store)
        beginning = begin_run(run, "worker-1", seconds=self.lease_seconds)
        await store.begin_run(beginning)
        await self.expire_leases()
        taken = await claim(store, run.run_id, "worker-2")
        assert (taken.fence, taken.takeovers) == (2, 1)
        await refused(LeaseLost, store.begin_run(beginning))
        assert record_of(await store.get_run(run.run_id)) == record_of(taken)

    async def test_a_run_with_an_owner_is_not_begun_however_long_it_is_silent(
        self, store: BeginningStore
    ) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        await refused(LeaseHeld, store.begin_run(begin_run(held, "worker-2")))
        assert record_of(await store.get_run(run.run_id)) == record_of(held)

    async def test_a_run_that_is_not_as_it_was_seen_is_not_begun(
        self, store: BeginningStore
    ) -> None:
        noted, canceled = await create(store), await create(store)
        for run, change in ((noted, annotate(noted, why="x")), (canceled, cancel(canceled))):
            await store.find_waiting(["default"], limit=5)  # what it remembers is no excuse
            now = await write(store, change)
            await refused(VersionConflict, store.begin_run(begin_run(run)))
            assert await store.get_run(run.run_id) == now

    async def test_a_run_that_may_not_begin_is_not_begun(self, store: BeginningStore) -> None:
        run = await create(store, approval=Approval(required=True))
        await refused(NotRunnable, store.begin_run(begin_run(run)))
        assert await store.get_run(run.run_id) == run

    async def test_a_run_that_nobody_has_is_not_begun(self, store: BeginningStore) -> None:
        for run_id in UNKNOWN_RUN_IDS:
            await refused(RunNotFound, store.begin_run(begin_run(new_run(run_id=run_id).snapshot)))

    async def test_what_cannot_be_stored_leaves_no_trace(self, store: BeginningStore) -> None:
        run = await create(store)
        await refused(StoreRejected, store.begin_run(begin_run(run, message="half a pair \ud800")))
        assert await store.get_run(run.run_id) == run
        assert (await store.begin_run(begin_run(run))).version == 2


class RunnableDiscovery(ContractHarness):
    """Listing of claimable runs."""

    async def test_worker_lists_runnable_runs(self, store: LeasingStore) -> None:
        wanted = [await create(store, queue="gpu") for _ in range(3)]
        await create(store, queue="cpu")
        where = RunFilter(queue="gpu")
        first = await store.list_runnable(where, limit=2)
        second = await store.list_runnable(where, limit=2, cursor=first.cursor)
        assert (*first.items, *second.items) == tuple(summarize(run) for run in wanted)
        assert {type(item) for item in first.items} == {RunSummary}
        assert second.cursor is None

    async def test_highest_priority_comes_first_then_oldest(self, store: LeasingStore) -> None:
        runs = [await create(store, priority=priority) for priority in (0, 5, -5, 5, 0)]
        expected = [runs[index].run_id for index in (1, 3, 0, 4, 2)]
        assert await _runnable(store) == expected
        paged = [item.run_id async for page in pages(store.list_runnable, limit=2) for item in page]
        assert paged == expected

    async def test_pages_hold_every_run_once_whatever_is_inserted(
        self, store: LeasingStore
    ) -> None:
        there = {(await create(store, priority=number % 3)).run_id for number in range(7)}
        seen: list[str] = []
        priorities = iter((100, 1, -100, 0, 2, 50, -50, 1, 0, -1))
        async for page in pages(store.list_runnable, limit=2):
            seen += [item.run_id for item in page]
            if len(seen) > 30:
                break
            await create(store, priority=next(priorities, 100))
        assert len(seen) == len(set(seen))
        assert there <= set(seen)

    async def test_run_claimed_between_pages_only_disappears(self, store: LeasingStore) -> None:
        runs = [await create(store) for _ in range(5)]
        first = await store.list_runnable(limit=2)
        await claim(store, runs[1].run_id)
        await claim(store, runs[2].run_id)
        second = await store.list_runnable(limit=10, cursor=first.cursor)
        assert [item.run_id for item in second.items] == [runs[3].run_id, runs[4].run_id]

    async def test_foreign_cursor_is_refused(self, store: LeasingStore) -> None:
        for _ in range(3):
            await create(store)
        other = (await store.list_runs(limit=1)).cursor
        assert other is not None
        for cursor in ("nonsense", other):
            await refused(InvalidCursor, store.list_runnable(cursor=cursor))
        mine = (await store.list_runnable(limit=1)).cursor
        assert mine is not None
        await refused(InvalidCursor, store.list_runs(cursor=mine))

    async def test_owned_runs_are_not_runnable_until_their_lease_expires(
        self, store: LeasingStore
    ) -> None:
        held = await claim(store, (await create(store)).run_id, seconds=self.lease_seconds)
        assert await _runnable(store) == []
        await store.update_run(start_step(held))
        assert await _runnable(store) == []
        await self.expire_leases()
        assert await _runnable(store) == [held.run_id]

    @pytest.mark.parametrize("status", ["success", "failed", "canceled", "interrupted"])
    async def test_ended_runs_are_not_runnable(self, store: LeasingStore, status: str) -> None:
        run = await create_embedded(store, recovery=Recovery.RESUME)
        await store.update_run(end_run(run, RunStatus(status)))
        assert await _runnable(store) == []

    async def test_canceled_queued_run_is_not_runnable(self, store: LeasingStore) -> None:
        await store.update_run(cancel(await create(store)))
        assert await _runnable(store) == []

    async def test_embedded_run_is_never_up_for_grabs(self, store: LeasingStore) -> None:
        await create_embedded(store)
        assert await _runnable(store) == []

    async def test_run_waits_for_its_time(self, store: LeasingStore) -> None:
        first = await create(store)
        assert first.created_at is not None
        later = first.created_at + timedelta(seconds=self.lease_seconds)
        waiting = await create(store, run_after=later)
        past = await create(store, run_after=first.created_at - timedelta(hours=1))
        assert set(await _runnable(store)) == {first.run_id, past.run_id}
        await self.expire_leases()
        assert set(await _runnable(store)) == {first.run_id, past.run_id, waiting.run_id}

    async def test_run_waits_for_approval(self, store: LeasingStore) -> None:
        run = await create(store, approval=Approval(required=True))
        assert await _runnable(store) == []
        await store.update_run(approve(run))
        assert await _runnable(store) == [run.run_id]

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (RunFilter(), "abc"),
            (RunFilter(statuses=frozenset({RunStatus.RUNNING})), "c"),
            (RunFilter(workflow_name="backup"), "b"),
            (RunFilter(queue="gpu"), "b"),
            (RunFilter(labels={"team": "web"}), "a"),
            (RunFilter(owner_id="owner-c"), "c"),
            (RunFilter(owner_id="owner-x"), ""),
            (RunFilter(held=True), "c"),
            (RunFilter(unapproved=True), ""),
        ],
        ids=str,
    )
    async def test_filters(self, store: LeasingStore, where: RunFilter, expected: str) -> None:
        expired = await create_embedded(
            store, "owner-c", seconds=self.lease_seconds, recovery=Recovery.RESUME
        )
        names = {
            (await create(store, labels={"team": "web"})).run_id: "a",
            (await create(store, queue="gpu", workflow_name="backup")).run_id: "b",
            expired.run_id: "c",
        }
        await create_embedded(store, "owner-x", queue="gpu", labels={"team": "web"})
        await self.expire_leases()
        page = await store.list_runnable(where)
        assert "".join(sorted(names[item.run_id] for item in page.items)) == expected

    async def test_filter_by_time_of_creation(self, store: LeasingStore) -> None:
        first = await create(store)
        await self.pass_time(0.01)
        second = await create(store)
        at = second.created_at
        before = await store.list_runnable(RunFilter(created_to=at))
        after = await store.list_runnable(RunFilter(created_from=at))
        assert [item.run_id for item in before.items] == [first.run_id]
        assert [item.run_id for item in after.items] == [second.run_id]

    async def test_listing_takes_nothing(self, store: LeasingStore) -> None:
        run = deepcopy(await create(store))
        await store.list_runnable()
        assert await store.get_run(run.run_id) == run
        (item,) = (await store.list_runnable()).items
        item.labels["vandal"] = "here"
        assert await store.get_run(run.run_id) == run

    async def test_claimed_run_is_held_before_it_begins_and_until_it_is_released(
        self, store: LeasingStore
    ) -> None:
        run, _ = await create(store), await create(store)
        held = await claim(store, run.run_id)
        (found,) = (await store.list_runs(RunFilter(held=True))).items
        assert (found.run_id, found.status) == (run.run_id, RunStatus.QUEUED)
        await store.release_lease(run.run_id, fencing_of(held), "release-it")
        assert (await store.list_runs(RunFilter(held=True))).items == ()

    async def test_released_resumable_run_comes_back_with_its_priority(
        self, store: LeasingStore
    ) -> None:
        low, high = await create(store), await create(store, priority=9)
        held = await claim(store, high.run_id)
        assert await _runnable(store) == [low.run_id]
        await store.release_lease(high.run_id, fencing_of(held), "release-it")
        assert await _runnable(store) == [high.run_id, low.run_id]


async def _runnable(store: LeasingStore) -> list[str]:
    return [item.run_id for item in (await store.list_runnable()).items]
