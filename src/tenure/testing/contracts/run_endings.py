"""What the end of a run, or of a step, does to everything that was still open."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tenure.model.errors import InvalidTransition, LeaseLost
from tenure.model.snapshot import Counts, RunSnapshot
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, RunChange, StepChange
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import (
    create_embedded,
    record_of,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    cancel,
    end_run,
    ending,
    finish_host,
    finish_step,
    owner_update,
    planned_steps,
    start_step,
)


class End(NamedTuple):
    """How an open run reads after it ended as ``status``."""

    status: str
    running_step: str
    running_host: str
    waiting_host: str
    pending_step: str
    pending_host: str


ENDS = [
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
    @pytest.mark.parametrize("end", ENDS, ids=lambda end: str(end.status))
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

    @pytest.mark.parametrize("end", ENDS, ids=lambda end: str(end.status))
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
        with pytest.raises(InvalidTransition):
            await store.update_run(end_run(run))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    async def test_step_cannot_end_with_a_host_still_running(self, store: RunStateStore) -> None:
        run = await start_first_step(store, await create_embedded(store))
        for status in (StepStatus.SUCCESS, StepStatus.FAILED):
            early = Changes(steps={0: StepChange(status=status)})
            with pytest.raises(InvalidTransition):
                await store.update_run(owner_update(run, early))
        assert record_of(await store.get_run(run.run_id)) == record_of(run)

    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.INTERRUPTED])
    async def test_failed_or_interrupted_run_always_says_why(
        self, store: RunStateStore, status: RunStatus
    ) -> None:
        """Even if whoever ended it did not."""
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
        with pytest.raises(InvalidTransition):
            await store.update_run(finish_host(run, 0, "web1"))
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
        """Also without being asked to release."""
        run = await create_embedded(store)
        ended = await write(store, owner_update(run, Changes(run=ending(RunStatus(status)))))
        assert (ended.owner_id, ended.lease_expires_at, ended.owner_lost) == (None, None, False)
        assert ended.fence == run.fence
        with pytest.raises(LeaseLost):
            await store.update_run(start_step(run))

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
        with pytest.raises(LeaseLost):
            await store.update_run(start_step(released))
