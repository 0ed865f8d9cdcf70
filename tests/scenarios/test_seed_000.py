"""Seed 000: the run state store. Each test is named after its scenario."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from examples.custom_store import DocumentStore

import tenure
from tests.scenarios.acting import Calls, steps


class TestRunnerExposesAPluggableRunStateStoreInterface:
    async def test_business_application_injects_a_custom_store(
        self, custom_store: DocumentStore
    ) -> None:
        """WHEN Runner starts with a custom RunStateStore THEN it uses it for create, update and
        query."""
        injected = Calls(custom_store)
        async with tenure.Runner(store=injected) as runner:
            run = await runner.run(steps("work", "work"))
            await runner.get_run(run.run_id)
            await runner.list_runs()
        assert set(injected.names) == {"create_run", "update_run", "get_run", "list_runs"}
        assert await custom_store.get_run(run.run_id) == run

    @pytest.mark.slow
    def test_no_concrete_storage_dependency_in_runner_core(self, tmp_path: Path) -> None:
        """WHEN Runner is built without database adapters THEN it still imports and runs."""
        program = (
            "import sys\n"
            "sys.modules['apsw'] = sys.modules['sqlite3'] = None\n"
            "import tenure\n"
            "workflow = tenure.Workflow(name='w', steps=[tenure.Step(name='a', action='cmd.run',"
            " args={'cmd': 'true'})])\n"
            "print(tenure.Runner().run_sync(workflow).status)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
        )
        assert (done.stdout, done.returncode) == ("success\n", 0), done.stderr


class TestStoreOperationsAreKeyedByRunId:
    async def test_create_and_fetch_by_run_id(self, custom_store: DocumentStore) -> None:
        """WHEN a run is created with a run_id THEN a get by it returns the created snapshot."""
        async with tenure.Runner(store=custom_store) as runner:
            created = await runner.run(steps("work"), tenure.RunOptions(run_id="order-1234"))
            assert created.run_id == "order-1234"
            assert await custom_store.get_run("order-1234") == created

    async def test_update_by_run_id(self, custom_store: DocumentStore) -> None:
        """WHEN Runner emits step or host progress for a run_id THEN the update applies to the same
        record and makes no second one."""
        injected = Calls(custom_store)
        async with tenure.Runner(store=injected) as runner:
            run = await runner.run(steps("work", "work", "work"))
            assert injected.names.count("create_run") == 1
            assert injected.names.count("update_run") == 3
            assert set(injected.run_ids) == {run.run_id}
            assert len((await runner.list_runs()).items) == 1


class TestRunnerProvidesADefaultNonProductionStoreFallback:
    async def test_fallback_store_is_used(self, fresh_process: None) -> None:
        """WHEN Runner starts without an external store THEN it initialises the fallback and
        continues."""
        async with tenure.Runner() as runner:
            run = await runner.run(steps("work"))
            assert run.status == "success"
            assert await runner.get_run(run.run_id) == run

    async def test_warning_is_emitted_for_non_durable_mode(
        self, fresh_process: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """WHEN Runner operates on fallback storage only THEN it warns that runs do not survive."""
        with caplog.at_level(logging.WARNING):
            async with tenure.Runner() as runner:
                await runner.run(steps("work"))
        (said,) = [each for each in caplog.records if "do not survive this process" in each.message]
        assert said.levelno == logging.WARNING

    @pytest.mark.slow
    def test_the_warning_is_visible_with_default_logging(self, tmp_path: Path) -> None:
        """The origin's logger was silent unless initialised: nobody ever saw its warning."""
        program = "import asyncio, tenure; asyncio.run(tenure.Runner().open())"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
        )
        assert "do not survive this process" in done.stderr
