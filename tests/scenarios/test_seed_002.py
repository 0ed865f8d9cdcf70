"""Seed 002: run_id, lifecycle, restart. Each test is named after its scenario."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from examples.custom_store import DocumentStore

import tenure
from tenure.model.status import TERMINAL_RUN, RunStatus
from tenure.model.update import RecordedEvent
from tenure.stores.file import FileStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import embedded_run, operator_status, start_step
from tests.scenarios.acting import Calls, steps


class Journal:
    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []

    async def record(self, event: RecordedEvent) -> None:
        self.events.append(event)

    @property
    def run_statuses(self) -> list[str]:
        return [each.status or "" for each in self.events if each.type.startswith("run.")]


class TestRunnerAssignsAUniqueRunIdForEachExecution:
    async def test_new_run_gets_run_id(self, custom_store: DocumentStore) -> None:
        """WHEN an execution starts THEN Runner generates or accepts exactly one run_id for it."""
        async with tenure.Runner(store=custom_store) as runner:
            made = [(await runner.run(steps("work"))).run_id for _ in range(3)]
            given = await runner.run(steps("work"), tenure.RunOptions(run_id="order-1234"))
        assert len(set(made)) == 3
        assert made == sorted(made), "ids made later are greater"
        assert all(re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", run_id) for run_id in made)
        assert given.run_id == "order-1234"

    async def test_run_id_remains_stable_through_lifecycle(
        self, custom_store: DocumentStore
    ) -> None:
        """WHEN step and host events of an execution are persisted THEN every update references the
        same run_id."""
        injected, journal = Calls(custom_store), Journal()
        async with tenure.Runner(store=injected, recorders=[journal]) as runner:
            run = await runner.run(steps("work", "work", "break"))
        assert set(injected.run_ids) == {run.run_id}
        assert {event.run_id for event in journal.events} == {run.run_id}
        assert len(journal.events) > 10


class TestRunnerEnforcesAValidRunStatusLifecycle:
    async def test_successful_completion(self, custom_store: DocumentStore) -> None:
        """WHEN all steps finish without unhandled errors THEN running becomes success."""
        journal = Journal()
        async with tenure.Runner(store=custom_store, recorders=[journal]) as runner:
            run = await runner.run(steps("work", "work"))
        assert run.status is RunStatus.SUCCESS
        assert journal.run_statuses == ["queued", "running", "success"]

    async def test_execution_failure(self, custom_store: DocumentStore) -> None:
        """WHEN execution exits with an unhandled step error THEN running becomes failed."""
        journal = Journal()
        async with tenure.Runner(store=custom_store, recorders=[journal]) as runner:
            run = await runner.run(steps("work", "break", "work"))
        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert "no disk left" in run.error.message
        assert journal.run_statuses == ["queued", "running", "failed"]

    @pytest.mark.parametrize("end", ["work", "break"])
    async def test_invalid_transition_is_rejected(
        self, custom_store: DocumentStore, end: str
    ) -> None:
        """WHEN an update tries to move a terminal run back to running THEN it is rejected and the
        previous terminal status kept."""
        async with tenure.Runner(store=custom_store) as runner:
            run = await runner.run(steps(end))
            assert run.status in TERMINAL_RUN
            for status in (RunStatus.RUNNING, RunStatus.QUEUED):
                with pytest.raises(tenure.InvalidTransition):
                    await custom_store.update_run(operator_status(run, status))
            assert await runner.get_run(run.run_id) == run


class TestRunnerPreservesRunTraceabilityAcrossProcessRestart:
    @pytest.mark.parametrize("scheme", ["sqlite", "file"])
    async def test_historical_run_remains_queryable(self, scheme: str, tmp_path: Path) -> None:
        """WHEN the Runner process restarts THEN completed runs are still retrievable by run_id.

        (``tests/runtime/test_recovery.py`` does it with processes that are killed.)"""
        url = {"sqlite": f"sqlite:///{tmp_path / 'runs.db'}", "file": f"file://{tmp_path / 'runs'}"}
        async with tenure.Runner(store=url[scheme]) as before:
            runs = [await before.run(steps(action)) for action in ("work", "break")]
        async with tenure.Runner(store=url[scheme]) as after:
            for run in runs:
                assert await after.get_run(run.run_id) == run

    @pytest.mark.parametrize("kind", [SQLiteStore, FileStore])
    async def test_in_progress_run_is_marked_interrupted_on_restart(
        self, kind: type[SQLiteStore | FileStore], tmp_path: Path
    ) -> None:
        """WHEN Runner finds a run persisted as running during startup reconciliation THEN it marks
        it interrupted and records a reason.

        Here the machine restarts, in the middle of a lease that had long to go."""
        clock = ManualClock()
        async with kind(tmp_path / "runs", clock) as before:
            await before.create_run(embedded_run("a-process-of-the-last-boot", run_id="order-1234"))
            await before.update_run(start_step(await before.get_run("order-1234")))
        clock.reboot()
        async with kind(tmp_path / "runs", clock) as after, tenure.Runner(store=after) as runner:
            run = await runner.get_run("order-1234")
        assert run.status is RunStatus.INTERRUPTED
        assert run.interrupted_reason == "the process that ran it is gone"
        assert run.finished_at is not None
        assert {step.status for step in run.steps} == {"interrupted"}
        assert {host.status for step in run.steps for host in step.hosts.values()} == {
            "interrupted"
        }
