"""Retries: linked runs that do what is left, with all that the old run had."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.actions import new_registry
from tenure.model.errors import NotRunnable, StillRunning
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import HostStatus, RunStatus
from tenure.ports.execution import TaskResult
from tenure.ports.store import Definitions
from tenure.runtime.recipe import decode_definition
from tenure.stores.memory import InMemoryStore
from tenure.workflow.spec import PlanSettings, Rolling
from tests.runtime.conftest import NewRunner
from tests.runtime.failed_runs import HOSTS, THREE, failing
from tests.runtime.puppets import BROKEN, Puppet, step, workflow

HOOK = CallbackTarget(name="hook", url="https://h.example", events=("run",))


class TestWhatIsLeft:
    async def test_what_failed_and_what_was_not_reached_and_nothing_else(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        run = await runner.retry(old.run_id)
        assert (run.status, run.retry_of) == (RunStatus.SUCCESS, old.run_id)
        assert run.run_id != old.run_id
        assert act.begun == ["two/b", "three/a", "three/b", "three/c"]
        first, second, _ = run.steps
        assert (first.status, first.message) == ("skipped", "no host is left for it")
        assert list(second.hosts) == ["b"]
        assert await runner.get_run(old.run_id) == old, "the old run is history"

    async def test_a_retry_in_which_nothing_begins_ends(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """Hosts that a condition left out are left over, and it leaves them out again."""
        runner = new_runner(memory)
        some = step("two", when="host == 'a'")
        old = await runner.run(workflow(step("one"), some, hosts=HOSTS))
        act.begun.clear()
        async with asyncio.timeout(20):
            run = await runner.retry(old.run_id)
        assert (run.status, act.begun) == (RunStatus.SUCCESS, [])
        assert run.steps[1].message == "its condition holds on no host"

    async def test_what_earlier_runs_exported_is_there_where_their_step_ends(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        for host in HOSTS:
            act.results[f"one/{host}"] = TaskResult(vars={"WHO": host, "ALL": "same"})
        old = await failing(runner, act, THREE, "two/b")
        await runner.retry(old.run_id)
        seen = act.tasks["three/a"].vars
        assert (seen["WHO"], seen["ALL"]) == ("a", "same")
        assert seen["hosts"]["c"]["WHO"] == "c"
        assert act.tasks["two/b"].vars["WHO"] == "b"

    async def test_a_chain_goes_on_where_the_last_one_stopped(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        first = await failing(runner, act, THREE, "one/a", "one/b")
        act.results["one/b"] = BROKEN
        second = await runner.retry(first.run_id)
        assert (second.status, act.begun) == (RunStatus.FAILED, ["one/a", "one/b"])
        act.results.clear()
        act.begun.clear()
        third = await runner.retry(second.run_id)
        assert third.status is RunStatus.SUCCESS
        assert act.begun[0] == "one/b"
        assert sorted(act.begun[1:]) == [f"{s}/{h}" for s in ("three", "two") for h in HOSTS]

    async def test_a_handler_that_was_due_is_owed_without_its_step(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """One host failed, so the step failed, and nobody told the others to reload."""
        played = workflow(
            step("configure", notify=["reload", "tell"]),
            hosts=HOSTS,
            handlers=[tenure.Handler(name=n, action="act") for n in ("reload", "tell")],
        )
        runner = new_runner(memory)
        act.results["configure/c"] = TaskResult(changed=False)
        old = await failing(runner, act, played, "configure/b")
        act.results["reload/b"] = BROKEN
        second = await runner.retry(old.run_id)
        assert act.begun == ["reload/a", "tell/a", "configure/b", "reload/b"]
        assert second.status is RunStatus.FAILED
        act.results.clear()
        act.begun.clear()
        third = await runner.retry(second.run_id)
        assert (third.status, act.begun) == (RunStatus.SUCCESS, ["reload/b", "tell/b"])
        assert third.steps[0].status == "success"

    @pytest.mark.parametrize("how", [{"from_step": "one"}, {"again": ["one"]}])
    async def test_what_is_owed_stays_owed_where_its_step_runs_again_and_comes_after_it(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet, how: dict[str, Any]
    ) -> None:
        """The work is done, and the step changes nothing now; its handlers have not run since."""
        reload = tenure.Handler(name="reload", action="act")
        tell = tenure.Handler(name="tell", action="act")
        played = workflow(
            step("one", notify=["reload", "tell"]), hosts=HOSTS, handlers=[reload, tell]
        )
        runner = new_runner(memory)
        old = await failing(runner, act, played, "reload/b")
        unchanged = TaskResult(changed=False, vars={"N": "new"})
        act.results |= {f"one/{host}": unchanged for host in HOSTS}
        act.results["reload/b"] = BROKEN
        second = await runner.retry(old.run_id, tenure.RetryOptions(limit=["b"], **how))
        assert (second.status, act.begun) == (RunStatus.FAILED, ["one/b", "reload/b"])
        assert act.tasks["reload/b"].vars["N"] == "new"
        del act.results["reload/b"]
        act.results["one/c"] = TaskResult()
        act.begun.clear()
        third = await runner.retry(second.run_id, tenure.RetryOptions(**how))
        assert third.status is RunStatus.SUCCESS
        assert act.begun[:3] == ["one/a", "one/b", "one/c"]
        assert sorted(act.begun[3:]) == ["reload/b", "reload/c", "tell/a", "tell/b", "tell/c"]
        with pytest.raises(NotRunnable, match="leaves nothing"):
            await runner.retry(third.run_id)

    async def test_a_step_that_failed_as_a_whole_is_done_nowhere(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await runner.run(workflow(step("one", expect_vars=["TOKEN"]), hosts=("a", "b")))
        assert old.status is RunStatus.FAILED
        act.begun.clear()
        act.results["one/b"] = TaskResult(vars={"TOKEN": "t"})
        run = await runner.retry(old.run_id)
        assert (run.status, act.begun) == (RunStatus.SUCCESS, ["one/a", "one/b"])

    async def test_what_is_done_nowhere_still_owes_what_it_owed(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        reload = tenure.Handler(name="reload", action="act")
        one = step("one", expect_vars=["TOKEN"], notify=["reload"])
        runner = new_runner(memory)
        old = await failing(runner, act, workflow(one, hosts=HOSTS, handlers=[reload]), "one/c")
        act.results["one/c"] = TaskResult(changed=False)
        second = await runner.retry(old.run_id, tenure.RetryOptions(limit=["c"]))
        assert second.steps[0].message == "expected vars missing: TOKEN"
        act.results |= dict.fromkeys(
            ["one/a", "one/b", "one/c"], TaskResult(changed=False, vars={"TOKEN": "t"})
        )
        act.begun.clear()
        assert (await runner.retry(second.run_id)).status is RunStatus.SUCCESS
        assert act.begun == ["one/a", "one/b", "one/c", "reload/a", "reload/b"]

    async def test_a_host_that_is_tried_again_counts_only_if_it_fails_again(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        rolling = Rolling(batch=1, max_failures=1)
        runner = new_runner(memory)
        played = workflow(step("one", rolling=rolling), hosts=("a", "b", "c", "d"))
        old = await failing(runner, act, played, "one/a", "one/b")
        assert old.status is RunStatus.FAILED
        act.results["one/a"] = BROKEN
        run = await runner.retry(old.run_id)
        assert act.begun == ["one/a", "one/b", "one/c", "one/d"]
        assert run.status is RunStatus.SUCCESS, "one failed host in all is within its budget"

    async def test_a_retry_that_helps_nobody_fails_whatever_its_budget(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        played = workflow(step("one", rolling=Rolling(batch=1, max_failures=1)), hosts=HOSTS)
        old = await failing(runner, act, played, "one/b")
        assert old.status is RunStatus.SUCCESS, "one host is within its budget"
        act.results["one/b"] = BROKEN
        run = await runner.retry(old.run_id)
        assert (run.status, act.begun) == (RunStatus.FAILED, ["one/b"])
        assert run.error is not None
        assert (
            "failed on b: it broke; failed before, and no host came through now"
            in run.error.message
        )

    async def test_hosts_that_stay_failed_count_in_the_budget_of_the_others(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        rolling = Rolling(batch=1, max_failures=1)
        played = workflow(step("one", rolling=rolling), hosts=("a", "b", "c", "d"))
        old = await failing(runner, act, played, "one/a", "one/b")
        act.results["one/c"] = BROKEN
        run = await runner.retry(old.run_id, tenure.RetryOptions(limit=["c", "d"]))
        assert (run.status, act.begun) == (RunStatus.FAILED, ["one/c"])
        assert run.steps[0].message == (
            "failed on 1 of 2 hosts (c): it broke; a, b failed before and count too"
        )

    async def test_one_of_which_nobody_saw_the_end_has_failed_too(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """For the budget, and for whoever retries only what failed."""
        runner = new_runner(memory)
        played = workflow(step("one", rolling=Rolling(batch=1)), hosts=("a", "b", "c"))
        act.results["one/a"] = StillRunning("nobody saw it end")
        old = await runner.run(played)
        assert old.steps[0].hosts["a"].status is HostStatus.UNKNOWN
        act.results.clear()
        act.begun.clear()
        act.results["one/c"] = BROKEN
        run = await runner.retry(old.run_id, tenure.RetryOptions(limit=["c"]))
        assert "a failed before and counts too" in (run.steps[0].message or "")
        act.begun.clear()
        await runner.retry(run.run_id, tenure.RetryOptions(only_failed=True, limit=["a", "b"]))
        assert act.begun == ["one/a"]

    @pytest.mark.parametrize("how", [{}, {"from_step": "one"}, {"again": ["one"]}])
    async def test_who_failed_has_failed_until_it_comes_through(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet, how: dict[str, Any]
    ) -> None:
        """Also where it is to run again, and where nobody came that far."""
        runner = new_runner(memory)
        rolling = Rolling(batch=1, max_failures=1)
        played = workflow(step("one", rolling=rolling), hosts=("a", "b", "c", "d"))
        old = await failing(runner, act, played, "one/c")
        act.results["one/c"] = BROKEN
        alone = tenure.RetryOptions(limit=["c"], **how)
        assert (await runner.retry(old.run_id, alone)).status is RunStatus.FAILED
        act.results.clear()
        old = await failing(runner, act, played, "one/a", "one/b")
        act.hold("one/a")
        options = tenure.RetryOptions(run_id="cut-short", **how)
        going = asyncio.create_task(runner.retry(old.run_id, options))
        await act.begins("one/a")
        await runner.cancel("cut-short")
        assert (await going).status is RunStatus.CANCELED
        act.results["one/c"] = BROKEN
        run = await runner.retry("cut-short", tenure.RetryOptions(limit=["c", "d"]))
        assert (run.status, act.begun) == (RunStatus.FAILED, ["one/a", "one/c"])
        assert "a, b failed before and count too" in (run.steps[0].message or "")

    async def test_a_run_that_was_cut_short_is_retried_like_any_other(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("two/b")
        runner = new_runner(any_store)
        going = asyncio.create_task(runner.run(THREE, tenure.RunOptions(run_id="cut-short")))
        await act.begins("two/b")
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        act.let_go("two/b")
        act.begun.clear()
        if not isinstance(any_store, Definitions):
            with pytest.raises(NotRunnable, match="keeps no definition"):
                await runner.retry("cut-short")
            return
        run = await new_runner(any_store).retry("cut-short")
        assert run.status is RunStatus.SUCCESS
        assert "two/b" in act.begun
        assert not [label for label in act.begun if label.startswith("one/")]


class TestWhatItTakesAlong:
    async def test_variables_labels_callbacks_limit_and_timeout(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        given: dict[str, Any] = {
            "vars": {"release": "1.4"},
            "labels": {"team": "web"},
            "callbacks": [HOOK],
            "limit": ["a", "b"],
            "timeout": 60.0,
            "queue": "night",
        }
        old = await failing(runner, act, THREE, "two/b", **given)
        run = await runner.retry(old.run_id, tenure.RetryOptions(run_id="second-try"))
        assert run.run_id == "second-try"
        assert (run.vars, run.labels, run.callbacks) == (old.vars, old.labels, old.callbacks)
        assert (run.timeout, run.queue, run.workflow_digest) == (60.0, "night", old.workflow_digest)
        assert act.begun == ["two/b", "three/a", "three/b"]
        assert act.tasks["three/a"].vars["release"] == "1.4"
        told = (await memory.list_deliveries(run_id="second-try")).items
        assert [each.event.type for each in told] == ["run.success", "run.running"]

    async def test_secrets_have_to_be_given_again(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        secret = workflow(step("one"), secrets=["token"])
        old = await failing(runner, act, secret, "one/local", secrets={"token": "s3cr3t-value"})
        with pytest.raises(tenure.InvalidWorkflow, match="token"):
            await runner.retry(old.run_id)
        given = tenure.RetryOptions(secrets={"token": "s3cr3t-value"})
        assert (await runner.retry(old.run_id, given)).status is RunStatus.SUCCESS
        assert act.tasks["one/local"].vars["token"] == "s3cr3t-value"

    async def test_it_wants_an_approval_of_its_own(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """And whoever goes on with it does what is left, no more: its definition says so."""
        runner = new_runner(memory)
        asks = workflow(step("one"), hosts=HOSTS, plan=PlanSettings(mode="manual-approve"))
        old = await failing(runner, act, asks, "one/b", approved_by="ada")
        waiting = await runner.retry(old.run_id)
        assert (waiting.status, waiting.approval.by) == (RunStatus.QUEUED, None)
        text = await memory.get_definition(waiting.run_id)
        continues = decode_definition(text or "").continues
        assert continues is not None
        assert list(continues.past[0].done) == ["a", "c"]
        await runner.approve(waiting.run_id, by="bob")
        run = await new_runner(memory).execute(waiting.run_id)
        assert (run.status, run.retry_of, act.begun) == ("success", old.run_id, ["one/b"])

    async def test_files_are_those_of_the_old_run(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet, tmp_path: Path
    ) -> None:
        (tmp_path / "site.conf").write_text("as it was\n")
        (tmp_path / "flow.yaml").write_text(
            "version: v1\nname: files\nsteps:\n"
            "  - {name: one, action: act}\n"
            "  - name: two\n    action: file.copy\n"
            f"    args: {{src: site.conf, dest: {tmp_path}/out}}\n"
        )
        runner = new_runner(memory)
        known = {**new_registry(), act.spec.name: act}
        flow = tenure.load_workflow(tmp_path / "flow.yaml", known)
        act.results["one/local"] = BROKEN
        old = await runner.run(flow)
        act.results.clear()
        (tmp_path / "site.conf").unlink()
        run = await new_runner(memory).retry(old.run_id)
        assert run.status is RunStatus.SUCCESS, run.error
        assert (tmp_path / "out").read_text() == "as it was\n"
