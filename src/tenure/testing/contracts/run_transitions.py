"""Which statuses may follow which. Written out by hand: a table that is only compared with
itself proves nothing."""

from __future__ import annotations

import pytest

from tenure.model.errors import InvalidTransition
from tenure.model.snapshot import RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, StepChange, Update
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import (
    create,
    create_embedded,
    record_of,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    change_run,
    end_run,
    finish_host,
    finish_step,
    lease_request,
    operator_status,
    owner_update,
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
        """Terminal is final; the same end again is agreement and writes nothing."""
        ended = await write(store, end_run(await create_embedded(store), end))
        change = operator_status(ended, later, base_version=ended.version)
        if later == end:
            assert (await store.update_run(change)).version == ended.version
        else:
            with pytest.raises(InvalidTransition):
                await store.update_run(change)
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
        """A rerun, or a late finding, settles it."""
        run = await start_first_step(store, await create_embedded(store))
        run = await write(store, finish_host(run, status=HostStatus.UNKNOWN))
        allowed = later in [*HOST_ENDS, "unknown", "running"]
        await _host_becomes(store, run, later, allowed=allowed)

    @pytest.mark.parametrize("end", HOST_ENDS)
    async def test_ended_host_stays_as_it_is(self, store: RunStateStore, end: str) -> None:
        """A finished host never runs again, and nobody rewrites its output."""
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
    with pytest.raises(InvalidTransition):
        await store.update_run(update)
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
