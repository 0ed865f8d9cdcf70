"""``Beginnings``: claimed and begun by one write, or not touched at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenure.model.errors import (
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    RunNotFound,
    StoreRejected,
    VersionConflict,
)
from tenure.model.snapshot import Approval
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.ports.store import Beginnings
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    at_once,
    claim,
    create,
    record_of,
    write,
)
from tenure.testing.contracts.harness import BeginningStore, ContractHarness
from tenure.testing.contracts.run_lives import ASKS, AT_BIRTH
from tenure.testing.factories import (
    CHATTY,
    annotate,
    approve,
    begin_run,
    cancel,
    claim_request,
    fencing_of,
    finish_host,
    new_run,
    start_step,
    unique,
)


class BeginningsContract(ContractHarness):
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
        run = await create(store, approval=ASKS, **AT_BIRTH)
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
        """Not even with what the store remembers for whoever begins it."""
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
        with pytest.raises(NotRunnable):
            await store.begin_run(begin_run(found.snapshot))

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
        with pytest.raises(LeaseLost):
            await store.update_run(finish_host(seen, host="web2"))

    async def test_one_of_many_begins_it(self, store: BeginningStore) -> None:
        run = await create(store)
        wanted = [begin_run(run, f"worker-{number}") for number in range(8)]
        begun, refused = await at_once(store.begin_run(each) for each in wanted)
        assert len(begun) == 1
        assert all(isinstance(error, LeaseHeld | VersionConflict) for error in refused)
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
        with pytest.raises(LeaseLost):
            await store.begin_run(beginning)
        assert record_of(await store.get_run(run.run_id)) == record_of(taken)

    async def test_a_run_with_an_owner_is_not_begun_however_long_it_is_silent(
        self, store: BeginningStore
    ) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        with pytest.raises(LeaseHeld):
            await store.begin_run(begin_run(held, "worker-2"))
        assert record_of(await store.get_run(run.run_id)) == record_of(held)

    async def test_a_run_that_is_not_as_it_was_seen_is_not_begun(
        self, store: BeginningStore
    ) -> None:
        noted, canceled = await create(store), await create(store)
        for run, change in ((noted, annotate(noted, why="x")), (canceled, cancel(canceled))):
            await store.find_waiting(["default"], limit=5)  # what it remembers is no excuse
            now = await write(store, change)
            with pytest.raises(VersionConflict):
                await store.begin_run(begin_run(run))
            assert await store.get_run(run.run_id) == now

    async def test_a_run_that_may_not_begin_is_not_begun(self, store: BeginningStore) -> None:
        run = await create(store, approval=Approval(required=True))
        with pytest.raises(NotRunnable):
            await store.begin_run(begin_run(run))
        assert await store.get_run(run.run_id) == run

    async def test_a_run_that_nobody_has_is_not_begun(self, store: BeginningStore) -> None:
        for run_id in UNKNOWN_RUN_IDS:
            with pytest.raises(RunNotFound):
                await store.begin_run(begin_run(new_run(run_id=run_id).snapshot))

    async def test_what_cannot_be_stored_leaves_no_trace(self, store: BeginningStore) -> None:
        run = await create(store)
        with pytest.raises(StoreRejected):
            await store.begin_run(begin_run(run, message="half a pair \ud800"))
        assert await store.get_run(run.run_id) == run
        assert (await store.begin_run(begin_run(run))).version == 2
