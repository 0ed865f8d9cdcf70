"""Seed 004, the decisions about the engine. Each test is named after what was decided."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from examples.custom_store import DocumentStore

import tenure
from tenure.model.errors import VersionConflict
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import RUN, TERMINAL_RUN, RunStatus
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import annotate, embedded_run, finish_host, start_step
from tests.scenarios.acting import Calls, steps


class TestDecision1RunStateStoreInjectedByTheHostApplication:
    async def test_the_runner_core_depends_on_the_interface_only(
        self, custom_store: DocumentStore
    ) -> None:
        """Four methods are all it asks of a store."""
        async with tenure.Runner(store=Calls(custom_store)) as runner:
            assert (await runner.run(steps("work"))).status is RunStatus.SUCCESS

    async def test_in_memory_and_file_stores_come_with_it(self, tmp_path: Path) -> None:
        for store in (tenure.InMemoryStore(), tenure.FileStore(tmp_path)):
            async with store, tenure.Runner(store=store) as runner:
                run = await runner.run(steps("work"))
                assert await store.get_run(run.run_id) == run

    async def test_list_runs_belongs_to_the_core(self, custom_store: DocumentStore) -> None:
        async with tenure.Runner(store=custom_store) as runner:
            runs = [await runner.run(steps(action)) for action in ("work", "break", "work")]
            listed = (await runner.list_runs()).items
            failed = (
                await runner.list_runs(tenure.RunFilter(statuses=frozenset({RunStatus.FAILED})))
            ).items
        assert [each.run_id for each in listed] == [run.run_id for run in reversed(runs)]
        assert [each.run_id for each in failed] == [runs[1].run_id]


class TestDecision2RunTrackerBridgesEngineAndStore:
    async def test_step_start_host_result_and_step_finish_reach_the_store(
        self, custom_store: DocumentStore
    ) -> None:
        async with tenure.Runner(store=custom_store) as runner:
            run = await runner.run(steps("work"))
        (step,) = run.steps
        assert step.started_at is not None
        assert step.finished_at is not None
        for host in step.hosts.values():
            assert host.started_at is not None
            assert host.finished_at is not None
            assert host.started_at < host.finished_at, "the origin recorded no duration"
            assert host.vars == {"answer": "done"}

    async def test_recorders_are_composed_with_it_and_kept(self) -> None:
        """Both get all events; neither breaks the other."""
        seen: list[str] = []

        class Recorder:
            async def record(self, event: tenure.RecordedEvent) -> None:
                seen.append(event.type)

        store = tenure.InMemoryStore()
        async with tenure.Runner(store=store, recorders=[Recorder(), Recorder()]) as runner:
            run = await runner.run(steps("work", "break"))
        journal = [event.type for event in await store.read_events(run.run_id)]
        assert sorted(seen) == sorted(journal * 2)


class TestDecision3SnapshotsAndAFiniteStateMachineKeyedByRunId:
    def test_the_state_machine_is_the_one_decided(self) -> None:
        assert (
            RUN[RunStatus.RUNNING]
            == TERMINAL_RUN
            == {
                RunStatus.SUCCESS,
                RunStatus.FAILED,
                RunStatus.CANCELED,
                RunStatus.INTERRUPTED,
            }
        )
        assert RunStatus.RUNNING in RUN[RunStatus.QUEUED]
        assert all(not RUN[end] for end in TERMINAL_RUN)

    async def test_the_snapshot_has_run_steps_hosts_and_output_summaries(self) -> None:
        workflow = tenure.Workflow(
            name="deploy",
            version="v1",
            steps=[
                tenure.Step(
                    name="print", action="cmd.run", args={"cmd": "seq 1 9999; echo oops >&2"}
                )
            ],
        )
        async with tenure.Runner(summary_bytes=64) as runner:
            run = await runner.run(workflow)
        assert (run.workflow_name, run.workflow_version) == ("deploy", "v1")
        host = run.steps[0].hosts["local"]
        assert (host.stdout or "").endswith("9998\n9999\n")
        assert len(host.stdout or "") <= 64
        assert (host.truncated, host.stderr, host.exit_code) == (True, "oops\n", 0)

    async def test_callers_may_supply_the_run_id(self, custom_store: DocumentStore) -> None:
        async with tenure.Runner(store=custom_store) as runner:
            run = await runner.run(steps("work"), tenure.RunOptions(run_id="trace:7f.3-a"))
            assert (await runner.get_run("trace:7f.3-a")) == run


class TestDecision4RestartMeansTraceableNotResumed:
    async def test_completed_runs_are_not_lost_and_running_ones_are_archived_as_interrupted(
        self, tmp_path: Path
    ) -> None:
        async with await SQLiteStore.open(tmp_path / "runs.db") as store:
            async with tenure.Runner(store=store) as first:
                done = await first.run(steps("work"))
            await store.create_run(embedded_run("gone", run_id="order-1234", seconds=0))
            async with tenure.Runner(store=store) as second:
                assert await second.reconcile(reason="restarted") == 1
                assert await second.get_run(done.run_id) == done
                run = await second.get_run("order-1234")
        assert (run.status, run.interrupted_reason) == (RunStatus.INTERRUPTED, "restarted")

    async def test_an_outer_system_can_set_the_record_straight_later(
        self, custom_store: DocumentStore
    ) -> None:
        """Risk: interrupted may not be what really became of an external task."""
        async with tenure.Runner(store=custom_store) as runner:
            run = await runner.run(steps("break"))
            noted = await runner.annotate(run.run_id, {"really": "it worked"}, by="audit")
        assert noted.status is RunStatus.FAILED
        assert noted.annotations[0].data == {"really": "it worked"}


class TestDecision5OneContractForQueryAndCallback:
    async def test_the_payload_has_the_fixed_fields(self) -> None:
        payloads: list[tenure.CallbackPayload] = []

        class Notifier:
            async def notify(self, payload: tenure.CallbackPayload) -> None:
                payloads.append(payload)

        async with tenure.Runner(notifier=Notifier()) as runner:
            run = await runner.run(steps("work", "break"))
        runs = [each for each in payloads if each.type.startswith("run.")]
        assert [each.status for each in runs] == ["queued", "running", "failed"]
        last = runs[-1]
        assert (last.run_id, last.workflow_name, last.version) == (
            run.run_id,
            "deploy",
            run.version,
        )
        assert (last.step, last.host) == (None, None)
        assert last.timestamp == run.finished_at
        assert last.error == run.error
        assert last.error is not None
        assert (last.error.step, last.error.failed_count) == ("step 2", 2)
        step = next(each for each in payloads if each.type == "step.failed")
        host = next(each for each in payloads if each.type == "host.failed")
        assert (step.step, step.host, step.status) == ("step 2", None, "failed")
        assert (host.step, host.host, host.status) == ("step 2", "web1", "failed")

    async def test_a_failing_callback_does_not_block_or_change_the_run(self) -> None:
        class Notifier:
            async def notify(self, payload: tenure.CallbackPayload) -> None:
                raise ConnectionError("nobody listens")

        async with tenure.Runner(notifier=Notifier()) as runner:
            assert (await runner.run(steps("work"))).status is RunStatus.SUCCESS

    async def test_callbacks_are_owed_durably_wherever_the_store_has_an_outbox(
        self, tmp_path: Path
    ) -> None:
        """They are in the same commit as the change they tell of; sending is the relay's work."""
        hook = CallbackTarget(name="hook", url="https://hooks.example")
        async with await SQLiteStore.open(tmp_path / "runs.db") as store:
            async with tenure.Runner(store=store) as runner:
                run = await runner.run(steps("work"), tenure.RunOptions(callbacks=[hook]))
            owed = (await store.list_deliveries(run_id=run.run_id)).items
        assert [each.event.type for each in owed] == ["run.success", "run.running", "run.queued"]


class TestRisks:
    async def test_frequent_updates_are_deltas_and_can_be_throttled(self) -> None:
        """Progress within the interval is merged; every status stays."""

        @tenure.action("scenario.flaky")
        async def flaky(task: tenure.Task) -> tenure.TaskResult:
            failed = tenure.TaskResult(status=tenure.HostStatus.FAILED)
            return failed if task.attempt < 5 else tenure.TaskResult()

        workflow = tenure.Workflow(
            name="w",
            steps=[
                tenure.Step(
                    name="a", action="scenario.flaky", retries=tenure.Retries(max=9, delay=0.001)
                )
            ],
        )
        async with tenure.Runner(progress_interval=60) as throttled:
            run = await throttled.run(workflow)
        assert (run.status, run.version) == (RunStatus.SUCCESS, 2)
        assert run.steps[0].hosts["local"].attempts == 5

    async def test_concurrent_updates_of_one_run_cannot_overwrite_each_other(
        self, custom_store: DocumentStore
    ) -> None:
        """Compare and set on the version; the loser is told."""
        await custom_store.create_run(embedded_run("owner", run_id="order-1234"))
        await custom_store.update_run(start_step(await custom_store.get_run("order-1234")))
        seen = await custom_store.get_run("order-1234")
        await custom_store.update_run(annotate(seen, found="something"))
        with pytest.raises(VersionConflict):
            await custom_store.update_run(finish_host(seen))
        assert (await custom_store.get_run("order-1234")).steps[0].hosts["web1"].status == "running"

    async def test_tracking_can_be_switched_off_to_roll_back(
        self, custom_store: DocumentStore
    ) -> None:
        """Migration plan, step 6: without the tracker the engine works as before."""
        injected: Any = Calls(custom_store)
        async with tenure.Runner(store=injected, tracking=False) as runner:
            run = await runner.run(steps("work"))
        assert (run.status, injected.names) == (RunStatus.SUCCESS, [])

    async def test_a_canceled_run_is_recorded_although_its_task_is_cancelled(
        self, custom_store: DocumentStore
    ) -> None:
        """The origin wrote its final state with the cancelled context: it could not be stored."""
        begun = asyncio.Event()

        @tenure.action("scenario.begin")
        async def begin() -> None:
            begun.set()
            await asyncio.Event().wait()

        options = tenure.RunOptions(run_id="order-1234")
        async with tenure.Runner(store=custom_store) as runner:
            running = asyncio.create_task(runner.run(steps("begin"), options))
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert (await custom_store.get_run("order-1234")).status is RunStatus.CANCELED
