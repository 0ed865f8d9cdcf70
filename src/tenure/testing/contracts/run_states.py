"""Transitions, what the end of a run closes, and approval."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from tenure.model.errors import InvalidTransition, LeaseLost, StoreRejected
from tenure.model.snapshot import Approval, Counts, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, RunChange, StepChange, Update
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import (
    at_once,
    create,
    create_embedded,
    record_of,
    refused,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    HOOK,
    LONG,
    approve,
    cancel,
    change_run,
    embedded_run,
    end_run,
    ending,
    expire,
    finish_host,
    finish_step,
    lease_request,
    new_run,
    operator_status,
    owner_update,
    planned_steps,
    start_run,
    start_step,
)

ENDS = [RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.CANCELED, RunStatus.INTERRUPTED]
FROM_QUEUED = ["running", "failed", "canceled", "interrupted"]
HOST_ENDS = ["success", "failed", "skipped", "canceled", "interrupted", "unreachable"]
FROM_PENDING = ["running", "skipped", "canceled", "interrupted", "unreachable"]
STEP_ENDS = ["success", "failed", "skipped", "canceled", "interrupted"]
STEP_FROM_PENDING = ["running", "skipped", "canceled", "interrupted"]


class RunTransitions(ContractHarness):
    """The allowed transitions, written out: a table compared with itself proves nothing."""

    async def test_successful_completion(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        run = await write(store, finish_step(run, 0))
        run = await write(store, start_step(run, 1))
        run = await write(store, finish_step(run, 1))
        ended = await write(store, end_run(run))
        assert ended.status == RunStatus.SUCCESS
        assert ended.finished_at == ended.updated_at
        assert ended.started_at == ended.created_at

    async def test_execution_failure(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        ended = await write(store, end_run(run, RunStatus.FAILED))
        assert ended.status == RunStatus.FAILED
        assert ended.error is not None
        assert ended.error.message == "ended as failed"

    async def test_interruption_keeps_its_reason(self, store: RunStateStore) -> None:
        ended = await write(store, end_run(await create_embedded(store), RunStatus.INTERRUPTED))
        assert (ended.status, ended.interrupted_reason) == ("interrupted", "owner gone")
        assert ended.error is not None

    async def test_start_of_a_queued_run_is_stamped(self, store: RunStateStore) -> None:
        run = await create(store, lease=lease_request())
        started = await write(store, start_run(run))
        assert (started.status, started.started_at) == ("running", started.updated_at)
        assert started.finished_at is None

    @pytest.mark.parametrize("status", FROM_QUEUED)
    async def test_queued_run_may_become(self, store: RunStateStore, status: str) -> None:
        run = await create(store, lease=lease_request())
        assert (await write(store, change_run(run, status=RunStatus(status)))).status == status

    async def test_queued_run_cannot_succeed(self, store: RunStateStore) -> None:
        run = await create(store, lease=lease_request())
        await _refused(store, run, change_run(run, status=RunStatus.SUCCESS))

    async def test_running_run_cannot_be_queued_again(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        await _refused(store, run, change_run(run, status=RunStatus.QUEUED))

    @pytest.mark.parametrize("later", list(RunStatus))
    @pytest.mark.parametrize("end", ENDS)
    async def test_invalid_transition_is_rejected(
        self, store: RunStateStore, end: RunStatus, later: RunStatus
    ) -> None:
        """Terminal is final; the same end again is accepted without a write."""
        ended = await write(store, end_run(await create_embedded(store), end))
        change = operator_status(ended, later, base_version=ended.version)
        if later == end:
            assert (await store.update_run(change)).version == ended.version
        else:
            await refused(InvalidTransition, store.update_run(change))
        assert await store.get_run(ended.run_id) == ended

    @pytest.mark.parametrize("later", list(HostStatus))
    async def test_pending_host_may_become(self, store: RunStateStore, later: HostStatus) -> None:
        run = await write(store, start_step(await create_embedded(store), 0, ()))
        await _host_becomes(store, run, later, allowed=later in FROM_PENDING)

    @pytest.mark.parametrize("later", list(HostStatus))
    async def test_running_host_may_become(self, store: RunStateStore, later: HostStatus) -> None:
        run = await start_first_step(store, await create_embedded(store))
        allowed = later in [*HOST_ENDS, "unknown", "running"]
        await _host_becomes(store, run, later, allowed=allowed)

    @pytest.mark.parametrize("later", list(HostStatus))
    async def test_unknown_host_may_become(self, store: RunStateStore, later: HostStatus) -> None:
        """By a rerun or a late result."""
        run = await start_first_step(store, await create_embedded(store))
        run = await write(store, finish_host(run, status=HostStatus.UNKNOWN))
        allowed = later in [*HOST_ENDS, "unknown", "running"]
        await _host_becomes(store, run, later, allowed=allowed)

    @pytest.mark.parametrize("end", HOST_ENDS)
    async def test_ended_host_stays_as_it_is(self, store: RunStateStore, end: str) -> None:
        run = await start_first_step(store, await create_embedded(store))
        run = await write(store, finish_host(run, status=HostStatus(end)))
        for status in HostStatus:
            await _refused(store, run, finish_host(run, status=status))
        quiet = StepChange(hosts={"web1": HostChange(stdout="rewritten")})
        await _refused(store, run, owner_update(run, Changes(steps={0: quiet})))

    async def test_rerun_of_an_unknown_host_starts_it_anew(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        run = await write(store, finish_host(run, status=HostStatus.UNKNOWN))
        assert run.steps[0].hosts["web1"].finished_at is not None
        run = await write(store, finish_host(run, status=HostStatus.RUNNING, attempts=2))
        host = run.steps[0].hosts["web1"]
        assert (host.started_at, host.finished_at) == (run.updated_at, None)

    @pytest.mark.parametrize("later", list(StepStatus))
    async def test_pending_step_may_become(self, store: RunStateStore, later: StepStatus) -> None:
        run = await create_embedded(store)
        await _step_becomes(store, run, later, allowed=later in [*STEP_FROM_PENDING, "pending"])

    @pytest.mark.parametrize("later", list(StepStatus))
    async def test_running_step_may_become(self, store: RunStateStore, later: StepStatus) -> None:
        run = await write(store, start_step(await create_embedded(store), 0, ()))
        await _step_becomes(store, run, later, allowed=later in [*STEP_ENDS, "running"])

    @pytest.mark.parametrize("end", STEP_ENDS)
    async def test_ended_step_stays_as_it_is(self, store: RunStateStore, end: str) -> None:
        run = await write(store, start_step(await create_embedded(store), 0, ()))
        run = await write(store, finish_step(run, 0, StepStatus(end)))
        for status in StepStatus:
            if status != end:
                await _refused(store, run, finish_step(run, 0, status))
        await _refused(store, run, finish_host(run))

    async def test_host_does_not_start_before_its_step(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        await _refused(store, run, finish_host(run, status=HostStatus.RUNNING))

    async def test_hosts_and_steps_nobody_planned_are_refused(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        await _refused(store, run, finish_host(run, 0, "web99"))
        await _refused(store, run, start_step(run, 7))
        gap = StepChange(plan=StepState(index=7, name="too far"), status=StepStatus.RUNNING)
        await _refused(store, run, owner_update(run, Changes(steps={7: gap})))


async def _refused(store: RunStateStore, run: RunSnapshot, update: Update) -> None:
    await refused(InvalidTransition, store.update_run(update))
    assert record_of(await store.get_run(run.run_id)) == record_of(run)


async def _host_becomes(
    store: RunStateStore, run: RunSnapshot, later: HostStatus, *, allowed: bool
) -> None:
    change = finish_host(run, status=later)
    if not allowed:
        await _refused(store, run, change)
        return
    assert (await write(store, change)).steps[0].hosts["web1"].status == later


async def _step_becomes(
    store: RunStateStore, run: RunSnapshot, later: StepStatus, *, allowed: bool
) -> None:
    change = owner_update(run, Changes(steps={0: StepChange(status=later)}))
    if not allowed:
        await _refused(store, run, change)
        return
    assert (await write(store, change)).steps[0].status == later


# What the end of a run or step closes.


class End(NamedTuple):
    """How an open run reads after it ended as ``status``."""

    status: str
    running_step: str
    running_host: str
    waiting_host: str
    pending_step: str
    pending_host: str


RUN_ENDINGS = [
    End("failed", "failed", "unknown", "skipped", "skipped", "skipped"),
    End("canceled", "canceled", "unknown", "canceled", "canceled", "canceled"),
    End("interrupted", "interrupted", "interrupted", "interrupted", "interrupted", "interrupted"),
]


async def _half_done(store: RunStateStore) -> RunSnapshot:
    """Step 0 done; step 1 running on web1 with web2 waiting; step 2 not reached."""
    run = await create_embedded(store, steps=planned_steps(3))
    run = await write(store, start_step(run, 0))
    run = await write(store, finish_step(run, 0))
    return await write(store, start_step(run, 1, ("web1",)))


class RunEndings(ContractHarness):
    @pytest.mark.parametrize("end", RUN_ENDINGS, ids=lambda end: str(end.status))
    async def test_nothing_stays_open_in_an_ended_run(self, store: RunStateStore, end: End) -> None:
        run = await _half_done(store)
        ended = await write(store, end_run(run, RunStatus(end.status)))
        done, cut, never = ended.steps
        assert done == run.steps[0]
        assert (cut.status, cut.finished_at) == (end.running_step, ended.finished_at)
        assert cut.hosts["web1"].status == end.running_host
        assert cut.hosts["web1"].started_at == run.steps[1].hosts["web1"].started_at
        assert cut.hosts["web1"].finished_at == ended.finished_at
        assert (cut.hosts["web2"].status, cut.hosts["web2"].started_at) == (end.waiting_host, None)
        assert (never.status, never.started_at) == (end.pending_step, None)
        assert never.finished_at == ended.finished_at
        assert {host.status for host in never.hosts.values()} == {end.pending_host}
        assert {host.finished_at for host in never.hosts.values()} == {ended.finished_at}

    @pytest.mark.parametrize("end", RUN_ENDINGS, ids=lambda end: str(end.status))
    async def test_counts_of_an_ended_run_tell_what_was_reached(
        self, store: RunStateStore, end: End
    ) -> None:
        ended = await write(store, end_run(await _half_done(store), RunStatus(end.status)))
        assert ended.counts == Counts(
            steps={StepStatus.SUCCESS: 1, StepStatus(end.running_step): 1},
            hosts={HostStatus.SUCCESS: 2, HostStatus(end.running_host): 1},
            steps_total=3,
            hosts_total=6,
        )

    async def test_success_skips_what_was_not_reached(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        ended = await write(store, end_run(await write(store, finish_step(run, 0))))
        assert [step.status for step in ended.steps] == ["success", "skipped"]
        assert {host.status for host in ended.steps[1].hosts.values()} == {"skipped"}

    async def test_run_cannot_succeed_with_something_still_running(
        self, store: RunStateStore
    ) -> None:
        run = await start_first_step(store, await create_embedded(store))
        await refused(InvalidTransition, store.update_run(end_run(run)))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_step_cannot_end_with_a_host_still_running(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        for status in (StepStatus.SUCCESS, StepStatus.FAILED):
            early = Changes(steps={0: StepChange(status=status)})
            await refused(InvalidTransition, store.update_run(owner_update(run, early)))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.INTERRUPTED])
    async def test_failed_or_interrupted_run_always_says_why(
        self, store: RunStateStore, status: RunStatus
    ) -> None:
        run = await create_embedded(store)
        silent = Changes(run=RunChange(status=status))
        ended = await write(store, owner_update(run, silent, release=True))
        assert ended.error is not None
        assert ended.error.message
        assert ended.last_error == ended.error

    async def test_last_results_ride_with_the_end(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        hosts = {name: HostChange(status=HostStatus.SUCCESS) for name in ("web1", "web2")}
        last = Changes(
            run=RunChange(status=RunStatus.SUCCESS),
            steps={0: StepChange(status=StepStatus.SUCCESS, hosts=hosts)},
        )
        ended = await write(store, owner_update(run, last, release=True))
        assert (ended.status, ended.version) == (RunStatus.SUCCESS, run.version + 1)
        assert {host.status for host in ended.steps[0].hosts.values()} == {"success"}

    @pytest.mark.parametrize(
        ("end", "waiting"),
        [
            ("success", "skipped"),
            ("failed", "skipped"),
            ("skipped", "skipped"),
            ("canceled", "canceled"),
            ("interrupted", "interrupted"),
        ],
    )
    async def test_end_of_a_step_closes_its_hosts_that_never_started(
        self, store: RunStateStore, end: str, waiting: str
    ) -> None:
        run = await write(store, start_step(await create_embedded(store), 0, ("web1",)))
        run = await write(store, finish_step(run, 0, StepStatus(end)))
        step = run.steps[0]
        assert (step.status, step.finished_at) == (end, run.updated_at)
        assert step.hosts["web2"].status == waiting
        assert step.hosts["web2"].finished_at == step.finished_at
        assert run.steps[1].status == StepStatus.PENDING

    async def test_items_of_a_host_end_with_it(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        looping = HostChange(items={0: ItemChange(status=HostStatus.RUNNING)})
        run = await write(
            store, owner_update(run, Changes(steps={0: StepChange(hosts={"web1": looping})}))
        )
        ended = await write(store, end_run(run, RunStatus.INTERRUPTED))
        assert ended.steps[0].hosts["web1"].items[0].status == HostStatus.INTERRUPTED

    async def test_host_cannot_succeed_with_an_item_still_running(
        self, store: RunStateStore
    ) -> None:
        run = await start_first_step(store, await create_embedded(store))
        looping = HostChange(items={0: ItemChange(status=HostStatus.RUNNING)})
        run = await write(
            store, owner_update(run, Changes(steps={0: StepChange(hosts={"web1": looping})}))
        )
        await refused(InvalidTransition, store.update_run(finish_host(run, 0, "web1")))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_canceled_run_names_hosts_that_did_not_confirm(
        self, store: RunStateStore
    ) -> None:
        run = await start_first_step(store, await create_embedded(store))
        run = await write(store, cancel(run))
        run = await write(store, finish_host(run, 0, "web1", HostStatus.CANCELED))
        ended = await write(store, end_run(run, RunStatus.CANCELED))
        assert ended.unconfirmed_hosts == ("web2",)
        assert ended.steps[0].hosts["web2"].status == HostStatus.UNKNOWN

    @pytest.mark.parametrize("status", ["success", "failed", "canceled", "interrupted"])
    async def test_terminal_transition_clears_owner_and_lease(
        self, store: RunStateStore, status: str
    ) -> None:
        run = await create_embedded(store)
        ended = await write(store, owner_update(run, Changes(run=ending(RunStatus(status)))))
        assert (ended.owner_id, ended.lease_expires_at, ended.owner_lost) == (None, None, False)
        assert ended.fence == run.fence
        await refused(LeaseLost, store.update_run(start_step(run)))

    async def test_same_end_again_by_the_last_owner_writes_nothing(
        self, store: RunStateStore
    ) -> None:
        run = await create_embedded(store)
        ended = await write(store, end_run(run, RunStatus.FAILED))
        receipt = await store.update_run(end_run(run, RunStatus.FAILED))
        assert (receipt.version, receipt.status) == (ended.version, RunStatus.FAILED)
        assert await store.get_run(run.run_id) == ended

    async def test_update_that_releases_leaves_the_status(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        released = await write(store, owner_update(run, Changes(), release=True))
        assert (released.status, released.owner_id) == (RunStatus.RUNNING, None)
        assert (released.fence, released.version) == (run.fence, run.version + 1)
        assert released.owner_lost
        await refused(LeaseLost, store.update_run(start_step(released)))


ASKS = Approval(required=True)


async def waiting(store: RunStateStore, seconds: float | None, **fields: Any) -> RunSnapshot:
    """A run that may be approved for ``seconds``."""
    new = replace(new_run(approval=ASKS, **fields), approval_seconds=seconds)
    await store.create_run(new)
    return await store.get_run(new.snapshot.run_id)


class RunApproval(ContractHarness):
    """Approval: one is enough, in time, and no owner has the run before."""

    async def test_approval_is_recorded_once(self, store: RunStateStore) -> None:
        run = await create(store, approval=ASKS)
        approved = await write(store, approve(run, by="alice", note="as agreed"))
        assert approved.approval == Approval(
            required=True, by="alice", at=approved.updated_at, note="as agreed"
        )
        assert (approved.status, approved.fence) == (RunStatus.QUEUED, run.fence)
        receipt = await store.update_run(approve(run, by="bob", note="me too"))
        assert receipt.version == approved.version
        assert await store.get_run(run.run_id) == approved

    async def test_approval_sent_again_after_a_lost_answer_is_no_second_one(
        self, store: RunStateStore
    ) -> None:
        run = await create(store, approval=ASKS)
        yes = approve(run, by="alice")
        first = await store.update_run(yes)
        assert (await store.update_run(yes)).version == first.version

    async def test_of_many_approvers_at_once_one_is_written(self, store: RunStateStore) -> None:
        run = await create(store, approval=ASKS)
        names = [f"approver-{number}" for number in range(10)]
        receipts, errors = await at_once(store.update_run(approve(run, by=name)) for name in names)
        assert not errors
        assert {receipt.version for receipt in receipts} == {run.version + 1}
        assert (await store.get_run(run.run_id)).approval.by in names

    async def test_approval_of_an_ended_run_is_refused(self, store: RunStateStore) -> None:
        run = await create(store, approval=ASKS)
        ended = await write(store, cancel(run))
        await refused(InvalidTransition, store.update_run(approve(run)))
        assert await store.get_run(run.run_id) == ended

    async def test_run_that_does_not_ask_cannot_be_approved(self, store: RunStateStore) -> None:
        run = await create(store)
        await refused(InvalidTransition, store.update_run(approve(run)))
        assert await store.get_run(run.run_id) == run

    async def test_nobody_begins_a_run_that_waits(self, store: RunStateStore) -> None:
        run = await create(store, approval=ASKS)
        await refused(InvalidTransition, store.update_run(operator_status(run, RunStatus.RUNNING)))
        assert await store.get_run(run.run_id) == run

    async def test_run_that_waits_is_born_queued_and_unowned(self, store: RunStateStore) -> None:
        begun = embedded_run("owner-a", approval=ASKS)
        owned = replace(new_run(approval=ASKS), lease=lease_request("owner-a", seconds=LONG))
        for new in (begun, owned):
            await refused(StoreRejected, store.create_run(new))

    async def test_run_approved_at_birth_begins_at_once(self, store: RunStateStore) -> None:
        run = await create_embedded(store, approval=Approval(required=True, by="alice"))
        assert run.approval == Approval(required=True, by="alice", at=run.created_at)

    async def test_time_to_approve_counts_from_birth_by_the_stores_clock(
        self, store: RunStateStore
    ) -> None:
        run = await waiting(store, 3600.0)
        assert run.created_at is not None
        assert run.approval.expires_at is not None
        assert (run.approval.expires_at - run.created_at).total_seconds() == 3600.0

    async def test_run_expires_once_its_time_is_over(self, store: RunStateStore) -> None:
        run = await waiting(store, self.lease_seconds, callbacks=(HOOK,))
        await self.expire_leases()
        ended = await write(store, expire(run))
        assert (ended.status, ended.fence) == (RunStatus.CANCELED, run.fence + 1)
        assert ended.message == "canceled: not approved in time"
        assert ended.approval == run.approval
        assert (await store.update_run(expire(run))).version == ended.version

    async def test_run_does_not_expire_before(self, store: RunStateStore) -> None:
        for run in (await waiting(store, LONG), await waiting(store, None), await create(store)):
            await refused(InvalidTransition, store.update_run(expire(run)))
            assert await store.get_run(run.run_id) == run

    async def test_approval_comes_too_late(self, store: RunStateStore) -> None:
        run = await waiting(store, self.lease_seconds)
        await self.expire_leases()
        await refused(InvalidTransition, store.update_run(approve(run)))
        assert await store.get_run(run.run_id) == run

    async def test_approved_run_never_expires(self, store: RunStateStore) -> None:
        run = await waiting(store, self.lease_seconds)
        approved = await write(store, approve(run, by="alice"))
        await self.expire_leases()
        await refused(InvalidTransition, store.update_run(expire(approved)))
        assert (await store.update_run(approve(run, by="bob"))).version == approved.version
        assert await store.get_run(run.run_id) == approved
