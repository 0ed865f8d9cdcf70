"""Seed 001, callbacks. Each test is named after its scenario; each is played on the store of an
integrator, which has no outbox, and on SQLite, which has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from examples.custom_store import DocumentStore

import tenure
from tests.notifiers.receiver import Receiver
from tests.scenarios.acting import steps

PATIENCE = 20.0
ONE_ATTEMPT = tenure.CallbackSettings(allow_private=True, attempts=1, flush=PATIENCE)
NO_WAITING = tenure.CallbackSettings(allow_private=True, attempts=3, delay=0, flush=PATIENCE)


@pytest.fixture(params=["custom", "sqlite"])
async def store(
    request: pytest.FixtureRequest, custom_store: DocumentStore, tmp_path: Path
) -> AsyncIterator[Any]:
    if request.param == "custom":
        yield custom_store
    else:
        async with tenure.open_store(f"sqlite:///{tmp_path / 'runs.db'}") as sqlite:
            yield sqlite


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


def to(receiver: Receiver, path: str) -> tenure.RunOptions:
    return tenure.RunOptions(callbacks=[tenure.CallbackSpec(url=receiver.url(path))])


class TestRunnerEmitsStandardizedStatusCallbackPayloads:
    async def test_callback_on_status_transition(self, store: Any, receiver: Receiver) -> None:
        """WHEN the run's status changes to a new lifecycle state THEN Runner emits one callback
        event with the standardized fields."""
        async with tenure.Runner(store=store, callbacks=NO_WAITING) as runner:
            run = await runner.run(steps("work"), to(receiver, "ok"))
        said = [each.json for each in receiver.received]
        assert [each["status"] for each in said] == ["queued", "running", "success"]
        assert {each["run_id"] for each in said} == {run.run_id}
        for each in said:
            assert each["workflow_name"] == "deploy"
            assert each["timestamp"].endswith("Z")
            assert each["error"] is None
            assert each["type"] == f"run.{each['status']}"
        assert len({each.headers["webhook-id"] for each in receiver.received}) == 3

    @pytest.mark.parametrize("store", ["sqlite"], indirect=True)
    async def test_callback_on_status_transition_of_a_queued_run(
        self, store: Any, receiver: Receiver
    ) -> None:
        """The same of a run that no process has taken yet, where a worker could."""
        async with tenure.Runner(store=store, callbacks=NO_WAITING) as runner:
            queued = await runner.submit(steps("work"), to(receiver, "ok"))
            await runner.cancel(queued.run_id)
        said = [each.json for each in receiver.received]
        assert [each["status"] for each in said] == ["queued", "canceled"]
        assert {each["run_id"] for each in said} == {queued.run_id}

    async def test_callback_includes_error_context(self, store: Any, receiver: Receiver) -> None:
        """WHEN the run's status changes to failed THEN the payload includes error information
        sufficient for downstream diagnosis."""
        async with tenure.Runner(store=store, callbacks=NO_WAITING) as runner:
            run = await runner.run(steps("work", "break"), to(receiver, "ok"))
        failed = receiver.received[-1].json
        assert (failed["run_id"], failed["status"]) == (run.run_id, "failed")
        error = failed["error"]
        assert "no disk left" in error["message"]
        assert (error["step"], error["host"]) == ("step 2", "web1")
        assert error["failed_hosts"] == ["web1", "web2"]


class TestCallbackDeliveryFailuresDoNotChangeRunExecutionResult:
    @pytest.mark.parametrize("trouble", ["500", "410", "reset"])
    async def test_callback_fails_after_successful_run(
        self, store: Any, receiver: Receiver, trouble: str
    ) -> None:
        """WHEN the run reaches success but callback delivery fails THEN the persisted status
        remains success and the failure is recorded separately."""
        async with tenure.Runner(store=store, callbacks=ONE_ATTEMPT) as runner:
            run = await runner.run(steps("work"), to(receiver, trouble))
            assert run.status == "success"
        after = await store.get_run(run.run_id)
        assert (after.status, after.message, after.error) == ("success", run.message, None)
        assert (after.started_at, after.finished_at) == (run.started_at, run.finished_at)
        assert after.steps == run.steps
        assert after.callback_error is not None
        assert (after.callback_error.target, after.callback_error.attempts) == ("callback-1", 1)

    async def test_callback_retry_policy_is_applied(self, store: Any, receiver: Receiver) -> None:
        """WHEN callback transport fails with a retryable error THEN Runner applies the configured
        retry policy without blocking state persistence updates."""
        reached, go_on = asyncio.Event(), asyncio.Event()

        @tenure.action("scenario.pause")
        async def pause() -> None:
            reached.set()
            await go_on.wait()

        async with tenure.Runner(store=store, callbacks=NO_WAITING) as runner:
            running = asyncio.create_task(
                runner.run(steps("work", "pause"), to(receiver, "turns?of=503,429,200"))
            )
            await reached.wait()
            await receiver.got(3)  # run.queued: twice in vain, while the run went on
            go_on.set()
            run = await running
            assert run.status == "success"
        ids = [each.headers["webhook-id"] for each in receiver.received]
        said = [each.json["status"] for each in receiver.received]
        assert said == ["queued"] * 3 + ["running", "success"]
        assert len(set(ids[:3])) == 1
        assert (await store.get_run(run.run_id)).callback_error is None

    async def test_state_is_persisted_while_a_callback_waits_for_its_next_attempt(
        self, store: Any, receiver: Receiver
    ) -> None:
        """The next attempt is an hour away; the run does not wait for it."""
        later = tenure.CallbackSettings(allow_private=True, attempts=3, delay=3600, flush=PATIENCE)
        async with tenure.Runner(store=store, callbacks=later) as runner:
            run = await runner.run(steps("work", "work"), to(receiver, "503"))
            assert (await store.get_run(run.run_id)).status == "success"
        assert [each.json["status"] for each in receiver.received] == ["queued"]
