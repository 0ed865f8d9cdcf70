"""Runs that wait for approval: who lets them begin, who goes on, and what comes between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.model.errors import InvalidTransition, LeaseHeld, NotRunnable, StoreUnavailable
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.workflow.spec import PlanSettings
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import Between, Inbox, Puppet, step, workflow

ASKS = PlanSettings(mode="manual-approve")
WANTING = workflow(step("one"), step("two"), plan=ASKS)
EXPIRES = workflow(step("one"), plan=PlanSettings(mode="manual-approve", approval_timeout="1us"))
HOOK = CallbackTarget(name="hook", url="https://h.example", events=("run",))


async def approved(runner: tenure.Runner) -> RunSnapshot:
    return await runner.approve((await runner.run(WANTING)).run_id, by="ada")


class TestWaiting:
    async def test_it_waits_queued_and_holds_nothing(
        self, queueing: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        run = await new_runner(queueing).run(WANTING)
        assert (run.status, run.owner_id, run.fence) == (RunStatus.QUEUED, None, 0)
        assert (run.approval.required, run.approval.by) == (True, None)
        assert run.recovery is Recovery.INTERRUPT, "who executes it is a process like this one"
        assert act.begun == []
        assert (await queueing.list_runnable()).items == ()

    async def test_another_process_goes_on_with_it(
        self, queueing: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        """What the crash of an approver between yes and go leaves behind is just this."""
        waiting = await new_runner(queueing).run(WANTING, tenure.RunOptions(vars={"a": 1}))
        yes = await new_runner(queueing).approve(waiting.run_id, by="ada", note="go")
        assert (yes.status, yes.approval.by, yes.approval.note) == ("queued", "ada", "go")
        run = await new_runner(queueing).execute(waiting.run_id)
        assert (run.status, run.approval, run.takeovers) == (RunStatus.SUCCESS, yes.approval, 0)
        assert act.begun == ["one/local", "two/local"]
        assert act.tasks["one/local"].vars["a"] == 1
        assert act.tasks["one/local"].fence == run.fence == 1

    async def test_approved_from_the_start_it_never_waits(
        self, any_store: Any, new_runner: NewRunner
    ) -> None:
        run = await new_runner(any_store).run(WANTING, tenure.RunOptions(approved_by="ada"))
        assert (run.status, run.approval.by) == (RunStatus.SUCCESS, "ada")
        assert run.approval.at is not None

    async def test_its_secrets_are_wanted_when_it_is_executed(
        self, runner: tenure.Runner, act: Puppet
    ) -> None:
        secret = workflow(step("one"), secrets=["token"], plan=ASKS)
        run = await runner.run(secret, tenure.RunOptions(secrets={"token": "s3cr3t-value"}))
        await runner.approve(run.run_id, by="ada")
        with pytest.raises(tenure.InvalidWorkflow, match="token"):
            await runner.execute(run.run_id)
        done = await runner.execute(run.run_id, secrets={"token": "s3cr3t-value"})
        assert done.status is RunStatus.SUCCESS
        assert act.tasks["one/local"].vars["token"] == "s3cr3t-value"

    @pytest.mark.parametrize("kind", ["file", "untracked"])
    async def test_where_nobody_could_go_on_it_is_refused_at_once(
        self, kind: str, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        async with FileStore(tmp_path / "runs") as store:
            runner = new_runner(store) if kind == "file" else new_runner(tracking=False)
            with pytest.raises(tenure.InvalidWorkflow, match=r"plan\.mode.*--approve"):
                await runner.run(WANTING)
            assert (await store.list_runs()).items == ()


class TestMeeting:
    async def test_of_two_that_approve_and_execute_one_executes(
        self, queueing: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        waiting = await new_runner(queueing).run(WANTING)
        act.hold("one/local")

        async def approve_and_go(name: str) -> RunSnapshot:
            runner = new_runner(queueing)
            await runner.approve(waiting.run_id, by=name)
            return await runner.execute(waiting.run_id)

        going = [asyncio.create_task(approve_and_go(name)) for name in ("ada", "bob")]
        await act.begins("one/local")
        done, _ = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
        act.let_go("one/local")
        answers = await asyncio.gather(*going, return_exceptions=True)
        (loser,) = [each for each in answers if isinstance(each, BaseException)]
        assert isinstance(loser, LeaseHeld | NotRunnable)
        (run,) = [each for each in answers if isinstance(each, RunSnapshot)]
        assert (run.status, run.approval.by in ("ada", "bob")) == (RunStatus.SUCCESS, True)
        assert act.begun == ["one/local", "two/local"]
        assert len(done) == 1

    async def test_a_cancel_that_meets_the_claim_is_heard(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """Its owner has it already and has begun nothing."""
        store = Between(memory)
        runner = new_runner(store)
        run = await approved(runner)

        async def then_cancel(real: Any, *args: Any) -> Any:
            claimed = await real(*args)
            await new_runner(memory).cancel(run.run_id, reason="stop")
            return claimed

        store.rules["claim_run"] = then_cancel
        ended = await runner.execute(run.run_id)
        assert (ended.status, ended.cancel_reason) == (RunStatus.CANCELED, "stop")
        assert act.begun == []

    @pytest.mark.parametrize("method", ["update_run", "claim_run"])
    async def test_a_lost_answer_is_asked_for_again(
        self, queueing: Any, new_runner: NewRunner, act: Puppet, method: str
    ) -> None:
        store = Between(queueing)
        runner = new_runner(store)
        waiting = await runner.run(WANTING)

        async def lose_the_first(real: Any, *args: Any) -> Any:
            answer = await real(*args)
            if store.count(method) == 1:
                raise StoreUnavailable("the answer was lost")
            return answer

        store.rules[method] = lose_the_first
        yes = await runner.approve(waiting.run_id, by="ada")
        run = await runner.execute(waiting.run_id)
        assert store.count(method) >= 2
        assert (run.status, run.approval, run.fence) == (RunStatus.SUCCESS, yes.approval, 1)
        assert act.begun == ["one/local", "two/local"]


class TestTooLate:
    async def test_an_approval_that_comes_too_late_ends_the_run(
        self, queueing: Any, new_runner: NewRunner
    ) -> None:
        inbox = Inbox()
        runner = new_runner(queueing, notifier=inbox)
        waiting = await runner.run(EXPIRES)
        with pytest.raises(InvalidTransition, match="not later"):
            await runner.approve(waiting.run_id, by="ada")
        run = await runner.get_run(waiting.run_id)
        assert (run.status, run.message) == ("canceled", "canceled: not approved in time")
        await runner.close()
        assert [payload.type for payload in inbox.payloads] == ["run.queued", "run.canceled"]

    async def test_reconcile_ends_it_whoever_submitted_it(
        self, queueing: Any, new_runner: NewRunner
    ) -> None:
        runner = new_runner(queueing)
        options = tenure.RunOptions(callbacks=[HOOK])
        ended = [await runner.run(EXPIRES, options), await runner.submit(EXPIRES, options)]
        kept = [await runner.submit(WANTING), await approved(runner)]
        assert await runner.reconcile() == 0, "none of them was interrupted"
        for run in ended:
            now = await runner.get_run(run.run_id)
            assert (now.status, now.fence) == (RunStatus.CANCELED, 1)
            with pytest.raises(InvalidTransition, match="not approved in time"):
                await runner.approve(run.run_id, by="ada")
            told = (await queueing.list_deliveries(run_id=run.run_id)).items
            assert [each.event.type for each in told] == ["run.canceled", "run.queued"]
        for run in kept:
            assert await runner.get_run(run.run_id) == run
