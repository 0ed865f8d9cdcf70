"""Retries of runs whose secrets and exports with secrets in them were kept nowhere."""

from __future__ import annotations

from typing import Any

import pytest

import tenure
from tenure.model.errors import NotRunnable
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.execution import TaskResult
from tenure.stores.memory import InMemoryStore
from tests.runtime.conftest import NewRunner
from tests.runtime.failed_runs import HOSTS, failing
from tests.runtime.puppets import Puppet, step, workflow

SECRET = "s3cr3t-value"


GIVEN = {"token": SECRET}


class TestWhatIsKeptNowhere:
    """An export that held a secret is not in the record: no retry goes on as if it were there."""

    @pytest.fixture(autouse=True)
    def exports(self, act: Puppet) -> None:
        for host in HOSTS:
            act.results[f"one/{host}"] = TaskResult(vars={"AUTH": f"Bearer {SECRET}", "N": host})

    async def failed(
        self, runner: tenure.Runner, act: Puppet, *labels: str, **rest: Any
    ) -> RunSnapshot:
        played = workflow(
            step("one", **rest), step("two"), step("three"), hosts=HOSTS, secrets=["token"]
        )
        return await failing(runner, act, played, *labels, secrets=GIVEN)

    async def test_the_step_that_exported_it_is_named_and_nothing_is_stored(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await self.failed(runner, act, "two/b")
        with pytest.raises(NotRunnable) as refused:
            await runner.retry(old.run_id, tenure.RetryOptions(secrets=GIVEN))
        assert "step 'one' exported AUTH with a secret in it on a, b, c" in str(refused.value)
        assert "--again one" in str(refused.value)
        assert "--from-step one" in str(refused.value)
        assert act.begun == []
        assert len((await memory.list_runs()).items) == 1

    async def test_run_again_that_step_makes_up_for_it_and_the_rest_goes_on(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await self.failed(runner, act, "two/b")
        again = tenure.RetryOptions(secrets=GIVEN, again=["one"])
        run = await runner.retry(old.run_id, again)
        assert run.status is RunStatus.SUCCESS
        assert act.begun == ["one/a", "one/b", "one/c", "two/b", "three/a", "three/b", "three/c"]
        assert act.tasks["two/b"].vars["AUTH"] == f"Bearer {SECRET}"
        text = await memory.get_definition(run.run_id)
        assert SECRET not in (text or "")

    async def test_a_limit_that_leaves_the_host_out_is_named(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """What one host exports the others see."""
        runner = new_runner(memory)
        old = await self.failed(runner, act, "two/b", targets=["a", "b"])
        given = tenure.RetryOptions(secrets=GIVEN, again=["one"], limit=["b"])
        with pytest.raises(NotRunnable, match="and let the retry touch a too"):
            await runner.retry(old.run_id, given)
        given = tenure.RetryOptions(secrets=GIVEN, again=["one"], limit=["a", "b"])
        assert (await runner.retry(old.run_id, given)).status is RunStatus.SUCCESS
        assert act.begun == ["one/a", "one/b", "two/b", "three/a", "three/b"]

    async def test_nobody_is_known_to_export_it_but_who_did(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """The step has a host left, which exports nothing."""
        runner = new_runner(memory)
        del act.results["one/b"]
        old = await self.failed(runner, act, "one/b", targets=["a", "b"], expect_vars=["AUTH"])
        with pytest.raises(NotRunnable, match="exported AUTH with a secret in it on a: "):
            await runner.retry(old.run_id, tenure.RetryOptions(secrets=GIVEN))
        given = tenure.RetryOptions(secrets=GIVEN, again=["one"])
        assert (await runner.retry(old.run_id, given)).status is RunStatus.SUCCESS
        assert act.tasks["three/c"].vars["AUTH"] == f"Bearer {SECRET}"

    async def test_who_failed_in_that_step_does_not_speak_for_the_others(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        played = workflow(step("one"), step("two"), hosts=HOSTS, secrets=["token"])
        result = act.results["one/b"]
        old = await failing(runner, act, played, "one/b", secrets=GIVEN)
        act.results["one/b"] = result
        with pytest.raises(NotRunnable, match=r"on a, c: .* --again one .* one$"):
            await runner.retry(old.run_id, tenure.RetryOptions(secrets=GIVEN))
        given = tenure.RetryOptions(secrets=GIVEN, again=["one"])
        assert (await runner.retry(old.run_id, given)).status is RunStatus.SUCCESS

    async def test_what_ends_before_that_step_begins_does_not_need_it(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        played = workflow(
            step("zero", continue_on_error=True), step("one"), hosts=HOSTS, secrets=["token"]
        )
        old = await failing(runner, act, played, "zero/b", secrets=GIVEN)
        run = await runner.retry(old.run_id, tenure.RetryOptions(secrets=GIVEN))
        assert (run.status, act.begun) == (RunStatus.SUCCESS, ["zero/b"])

    async def test_a_handler_that_is_owed_needs_it(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        played = workflow(
            step("one", notify=["tell"]),
            hosts=HOSTS,
            secrets=["token"],
            handlers=[tenure.Handler(name="tell", action="act")],
        )
        old = await failing(runner, act, played, "tell/b", secrets=GIVEN)
        with pytest.raises(NotRunnable, match="in it on b: "):
            await runner.retry(old.run_id, tenure.RetryOptions(secrets=GIVEN))
        given = tenure.RetryOptions(secrets=GIVEN, again=["one"], limit=["b"])
        assert (await runner.retry(old.run_id, given)).status is RunStatus.SUCCESS
        assert act.begun == ["one/b", "tell/b"]
        assert act.tasks["tell/b"].vars["AUTH"] == f"Bearer {SECRET}"

    async def test_it_was_exported_all_the_same(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """``expect_vars`` asks whether, not what."""
        runner = new_runner(memory)
        played = workflow(step("one", expect_vars=["AUTH"]), hosts=HOSTS, secrets=["token"])
        old = await failing(runner, act, played, "one/b", secrets=GIVEN)
        run = await runner.retry(old.run_id, tenure.RetryOptions(secrets=GIVEN))
        assert (run.status, act.begun) == (RunStatus.SUCCESS, ["one/b"])
