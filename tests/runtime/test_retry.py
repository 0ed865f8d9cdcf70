"""Retries: linked runs that do what is left, with all that the old run had."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.actions import registry
from tenure.model.errors import NotRunnable, StillRunning
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.model.status import HostStatus, RunStatus
from tenure.ports.action import TaskResult
from tenure.ports.definitions import Definitions
from tenure.runtime.definition import decode_definition
from tenure.stores.memory import InMemoryStore
from tenure.workflow.spec import PlanSettings, Rolling
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, Puppet, step, workflow

HOSTS = ("a", "b", "c")
THREE = workflow(step("one"), step("two"), step("three"), hosts=HOSTS)
HOOK = CallbackTarget(name="hook", url="https://h.example", events=("run",))


async def failing(
    runner: tenure.Runner, act: Puppet, played: tenure.Workflow, *labels: str, **options: Any
) -> RunSnapshot:
    """A run in which these fail; afterwards nothing does."""
    act.results |= dict.fromkeys(labels, BROKEN)
    run = await runner.run(played, tenure.RunOptions(**options))
    for label in labels:
        del act.results[label]
    act.begun.clear()
    return run


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


class TestNarrowing:
    async def test_only_failed_leaves_alone_who_was_never_reached(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        second = await runner.retry(old.run_id, tenure.RetryOptions(only_failed=True))
        assert (second.status, act.begun) == (RunStatus.SUCCESS, ["two/b", "three/b"])
        act.begun.clear()
        third = await runner.retry(second.run_id)
        assert (third.status, act.begun) == (RunStatus.SUCCESS, ["three/a", "three/c"])

    async def test_who_failed_earlier_in_the_chain_has_failed_too(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        reload = tenure.Handler(name="reload", action="act")
        played = workflow(
            step("one", notify=["reload"]), step("two"), hosts=HOSTS, handlers=[reload]
        )
        runner = new_runner(memory)
        old = await failing(runner, act, played, "one/a", "one/b")
        second = await runner.retry(old.run_id, tenure.RetryOptions(limit=["a"]))
        assert second.status is RunStatus.SUCCESS
        act.results["reload/b"] = BROKEN
        act.begun.clear()
        only = tenure.RetryOptions(only_failed=True)
        third = await runner.retry(second.run_id, only)
        assert (third.status, act.begun) == (RunStatus.FAILED, ["one/b", "reload/b"])
        act.results.clear()
        fourth = await runner.retry(third.run_id, tenure.RetryOptions(limit=["c"]))
        act.begun.clear()
        fifth = await runner.retry(fourth.run_id, only)
        assert (fifth.status, act.begun) == (RunStatus.SUCCESS, ["reload/b", "two/b"])
        with pytest.raises(NotRunnable, match="leaves nothing"):
            await runner.retry(fifth.run_id, only)

    async def test_from_a_step_on_everything_runs_again_and_nothing_before(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        run = await runner.retry(old.run_id, tenure.RetryOptions(from_step="two"))
        assert run.status is RunStatus.SUCCESS
        assert act.begun == [f"{s}/{h}" for s in ("two", "three") for h in HOSTS]
        skipping = tenure.RetryOptions(from_step="2", limit=["a"])
        act.begun.clear()
        await runner.retry(old.run_id, skipping)
        assert act.begun == ["three/a"], "what is left of two is left alone"

    async def test_what_runs_again_on_one_host_stays_done_on_the_others(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        again = tenure.RetryOptions(from_step="one", limit=["a"])
        second = await runner.retry(old.run_id, again)
        assert act.begun == ["one/a", "two/a", "three/a"]
        act.begun.clear()
        await runner.retry(second.run_id)
        assert act.begun == ["two/b", "three/b", "three/c"]

    async def test_from_a_step_means_those_that_wait_for_it(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        played = workflow(
            step("last", needs=["middle"]), step("apart", needs=[]), step("middle", needs=[])
        )
        runner = new_runner(memory)
        old = await runner.run(played)
        act.begun.clear()
        await runner.retry(old.run_id, tenure.RetryOptions(from_step="middle"))
        assert act.begun == ["middle/local", "last/local"]

    async def test_what_is_not_there_is_named(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        with pytest.raises(tenure.InvalidWorkflow, match="no step named 'tow'; did you mean 'two'"):
            await runner.retry(old.run_id, tenure.RetryOptions(from_step="tow"))
        with pytest.raises(tenure.InvalidWorkflow, match="'9'; there is one, two, three"):
            await runner.retry(old.run_id, tenure.RetryOptions(again=["9"]))
        with pytest.raises(tenure.InvalidWorkflow, match="no host or group named 'x'"):
            await runner.retry(old.run_id, tenure.RetryOptions(limit=["x"]))
        assert act.begun == []

    async def test_nothing_left_is_said_before_anything_is_stored(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        fine = await runner.run(THREE)
        with pytest.raises(NotRunnable, match="every host came through every step"):
            await runner.retry(fine.run_id)
        old = await failing(runner, act, THREE, "three/b")
        with pytest.raises(NotRunnable, match="others are left"):
            await runner.retry(old.run_id, tenure.RetryOptions(limit=["a"]))
        limited = await runner.run(THREE, tenure.RunOptions(limit=["a"]))
        with pytest.raises(NotRunnable, match="had no part for b, c: it was limited to a"):
            await runner.retry(limited.run_id, tenure.RetryOptions(limit=["b", "c"]))
        assert len((await memory.list_runs()).items) == 3

    async def test_a_run_that_goes_on_is_not_retried(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        runner = new_runner(memory)
        queued = await runner.submit(THREE)
        with pytest.raises(NotRunnable, match="is queued: it can be retried once it has ended"):
            await runner.retry(queued.run_id)


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
        assert [each.event.type for each in told] == ["run.success", "run.running", "run.queued"]

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
        known = {**registry(), act.spec.name: act}
        flow = tenure.load_workflow(tmp_path / "flow.yaml", known)
        act.results["one/local"] = BROKEN
        old = await runner.run(flow)
        act.results.clear()
        (tmp_path / "site.conf").unlink()
        run = await new_runner(memory).retry(old.run_id)
        assert run.status is RunStatus.SUCCESS, run.error
        assert (tmp_path / "out").read_text() == "as it was\n"
