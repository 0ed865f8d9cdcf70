"""Seed 001, query by run_id. Each test is named after its scenario."""

from __future__ import annotations

import asyncio

import pytest
from examples.custom_store import DocumentStore

import tenure
from tests.scenarios.acting import steps


class TestRunnerProvidesRunStatusQueryByRunId:
    async def test_query_existing_run(self, custom_store: DocumentStore) -> None:
        """WHEN a client queries an existing run_id THEN Runner returns its snapshot with the
        current status, timestamps and progress of steps and hosts."""
        reached, go_on = asyncio.Event(), asyncio.Event()

        @tenure.action("scenario.hold")
        async def hold() -> None:
            reached.set()
            await go_on.wait()

        options = tenure.RunOptions(run_id="order-1234")
        async with tenure.Runner(store=custom_store) as runner:
            running = asyncio.create_task(runner.run(steps("work", "hold"), options))
            await reached.wait()
            during = await runner.get_run("order-1234")
            go_on.set()
            await running
            after = await runner.get_run("order-1234")
        assert (during.status, after.status) == ("running", "success")
        assert [step.status for step in during.steps] == ["success", "running"]
        assert during.steps[0].hosts["web1"].finished_at is not None
        assert during.steps[1].hosts["web2"].status == "running"
        assert during.started_at is not None
        assert during.finished_at is None
        assert after.finished_at is not None
        assert after.updated_at is not None
        assert during.updated_at is not None
        assert after.updated_at > during.updated_at

    async def test_query_unknown_run(self, custom_store: DocumentStore) -> None:
        """WHEN a client queries a run_id that does not exist THEN Runner says not found instead of
        making a state up."""
        async with tenure.Runner(store=custom_store) as runner:
            for run_id in ("no-such-run", "not/even/an/id", ""):
                with pytest.raises(tenure.RunNotFound):
                    await runner.get_run(run_id)
            assert not (await runner.list_runs()).items
