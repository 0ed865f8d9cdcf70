"""Ending runs early: by an operator, by whoever awaits them, by their time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.ports.execution import TaskResult
from tenure.stores.memory import InMemoryStore
from tenure.system import process_start
from tenure.workflow.spec import Defaults
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import (
    BROKEN,
    PATIENCE,
    Between,
    Onlooker,
    Outage,
    Puppet,
    shell,
    step,
    unkillable,
    workflow,
)

pytestmark = pytest.mark.slow

RUN_ID = "a-run-to-stop"
NAMED = tenure.RunOptions(run_id=RUN_ID)
TWO = workflow(step("one"), step("two"), hosts=["a", "b"])


def statuses(run: tenure.RunSnapshot) -> list[str]:
    return [each.status.value for each in run.steps]


def hosts(run: tenure.RunSnapshot, index: int = 0) -> dict[str, str]:
    return {name: host.status.value for name, host in run.steps[index].hosts.items()}


class TestByRequest:
    async def test_a_queued_run_is_canceled_at_once(
        self, queueing: Any, new_runner: NewRunner
    ) -> None:
        runner = new_runner(queueing)
        await runner.submit(TWO, NAMED)
        run = await runner.cancel(RUN_ID, reason="not tonight", by="ops")
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "not tonight")
        assert statuses(run) == ["canceled", "canceled"]

    async def test_a_running_one_ends_its_tasks_first(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/b")
        runner = new_runner(any_store)
        running = asyncio.create_task(runner.run(TWO, NAMED))
        await act.begins("one/a", "one/b")
        asked = await runner.cancel(RUN_ID, reason="wrong release")
        assert asked.cancel_requested_at is not None
        run = await running
        assert run.status is RunStatus.CANCELED
        assert run.message == "canceled on request"
        assert run.cancel_reason == "wrong release"
        assert hosts(run) == {"a": "success", "b": "canceled"}
        assert hosts(run, 1) == {"a": "canceled", "b": "canceled"}
        assert statuses(run) == ["canceled", "canceled"]
        assert run.unconfirmed_hosts == ()
        assert run.error is None
        assert act.cancelled == ["one/b"]
        assert "two/a" not in act.begun

    async def test_an_ended_one_stays_as_it_is(self, any_store: Any, new_runner: NewRunner) -> None:
        runner = new_runner(any_store)
        before = await runner.run(TWO, NAMED)
        assert await runner.cancel(RUN_ID) == before

    async def test_success_stands_if_everything_had_finished(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        """The request comes while the last result is on its way into the store."""
        store = Between(InMemoryStore())
        runner = new_runner(store)

        async def cancel_in_between(real: Any, writes: Any) -> Any:
            if act.ended and not store.count("update_run"):
                await runner.cancel(RUN_ID)
            return await real(writes)

        store.rules["update_runs"] = cancel_in_between
        run = await runner.run(workflow(step("one")), NAMED)
        assert run.status is RunStatus.SUCCESS
        assert run.cancel_requested_at is not None

    async def test_a_task_that_finishes_in_spite_of_it_counts(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner()

        async def stubborn(task: tenure.Task) -> TaskResult:
            try:
                await runner.cancel(task.run_id)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return TaskResult(vars={"done": True})
            return BROKEN

        act.results["one/local"] = stubborn
        run = await runner.run(workflow(step("one")))
        assert run.status is RunStatus.SUCCESS
        assert run.steps[0].hosts["local"].vars == {"done": True}

    async def test_the_whole_process_tree_is_gone_before_the_record_says_so(
        self, any_store: Any, new_runner: NewRunner, tmp_path: Path
    ) -> None:
        pids = tmp_path / "pids"
        cmd = f"sleep 1000 & echo $! $$ > {pids}; echo ready; wait"
        onlooker = Onlooker()
        runner = new_runner(any_store, recorders=[onlooker])
        running = asyncio.create_task(runner.run(workflow(shell("one", cmd)), NAMED))
        async with asyncio.timeout(PATIENCE):
            while not onlooker.chunks:
                await asyncio.sleep(0.01)
        await runner.cancel(RUN_ID)
        run = await running
        assert hosts(run) == {"local": "canceled"}
        assert all(process_start(int(pid)) is None for pid in pids.read_text().split())
        assert run.steps[0].hosts["local"].stdout == "ready\n"

    async def test_a_task_nobody_saw_end_is_unknown_and_named(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/a"] = unkillable
        act.hold("one/b")
        runner = new_runner(any_store)
        running = asyncio.create_task(runner.run(TWO, NAMED))
        await act.begins("one/a", "one/b")
        await runner.cancel(RUN_ID)
        run = await running
        assert run.status is RunStatus.CANCELED
        assert hosts(run) == {"a": "unknown", "b": "canceled"}
        assert run.unconfirmed_hosts == ("a",)
        assert run.steps[0].hosts["a"].message == "process 1234 could not be killed"

    async def test_hosts_between_two_items_are_canceled(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/b[0]")
        runner = new_runner(any_store)
        looping = workflow(step("one", loop=[1, 2]), hosts=["a", "b"])
        running = asyncio.create_task(runner.run(looping, NAMED))
        await act.begins("one/a[0]", "one/b[0]")
        await runner.cancel(RUN_ID)
        run = await running
        assert hosts(run) == {"a": "canceled", "b": "canceled"}
        assert run.unconfirmed_hosts == ()

    async def test_who_was_told_that_a_step_began_hears_of_its_end(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("aside/local", "after/local")
        flow = workflow(
            step("one", notify=["after"]),
            step("aside", needs=[]),
            step("two"),
            handlers=[tenure.Handler(name="after", action="act")],
        )
        onlooker = Onlooker()
        runner = new_runner(any_store, recorders=[onlooker])
        running = asyncio.create_task(runner.run(flow, NAMED))
        await act.begins("aside/local", "after/local")
        await runner.cancel(RUN_ID)
        run = await running
        await runner.close()
        ends = [event.step for event in onlooker.events if event.type == "step.canceled"]
        assert sorted(map(str, ends)) == ["after", "aside", "one"]
        assert ends.index("after") < ends.index("one"), "a handler before its step"
        assert onlooker.types[-1] == "run.canceled"
        began = {each.message for each in run.steps if each.started_at is not None}
        assert began == {"canceled on request"}

    async def test_during_an_outage_it_is_told_when_the_store_is_back(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        outage = Outage(store, "update_runs")
        act.hold("one/a", "one/b")
        runner = new_runner(store)
        running = asyncio.create_task(runner.run(TWO, NAMED))
        await act.begins("one/a", "one/b")
        outage.on = True
        act.let_go("one/a")
        await outage.refuses()
        await runner.cancel(RUN_ID)
        async with asyncio.timeout(PATIENCE):
            while act.cancelled != ["one/b"]:
                await asyncio.sleep(0.01)
        outage.on = False
        run = await running
        assert (run.status, hosts(run)) == (RunStatus.CANCELED, {"a": "success", "b": "canceled"})


class TestOfTheCall:
    """``task.cancel()`` on whoever awaits ``run``."""

    @pytest.mark.parametrize("many", [False, True], ids=["here", "tasks"])
    async def test_once_ends_the_run_truthfully_then_comes_out(
        self, any_store: Any, new_runner: NewRunner, act: Puppet, many: bool
    ) -> None:
        played = TWO if many else workflow(step("one"), step("two"), hosts=["a"])
        labels = ["one/a", "one/b"] if many else ["one/a"]
        act.hold(*labels)
        running = asyncio.create_task(new_runner(any_store).run(played, NAMED))
        await act.begins(*labels)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        run = await any_store.get_run(RUN_ID)
        assert run.status is RunStatus.CANCELED
        assert run.message == "the process that ran it was stopped"
        assert statuses(run) == ["canceled", "canceled"]
        assert set(hosts(run).values()) == {"canceled"}
        assert act.cancelled == labels

    async def test_a_time_out_of_the_caller_works_as_everywhere(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = InMemoryStore()
        act.hold("one/local")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await new_runner(store).run(workflow(step("one")), NAMED)
        assert (await store.get_run(RUN_ID)).status is RunStatus.CANCELED

    async def test_while_a_write_is_under_way_it_waits_for_the_write(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        outage = Outage(store, "update_runs")
        running = asyncio.create_task(new_runner(store).run(workflow(step("one")), NAMED))
        act.hold("one/local")
        await act.begins("one/local")
        outage.on = True
        act.let_go("one/local")
        await outage.refuses()
        running.cancel()
        await outage.refuses(3)
        assert not running.done()
        outage.on = False
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await store.real.get_run(RUN_ID)).status is RunStatus.SUCCESS, "it had finished"

    async def test_before_the_run_is_born_nothing_is_executed(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        outage = Outage(store, "update_runs")
        runner = new_runner(store)
        await runner.open()
        outage.on = True
        running = asyncio.create_task(runner.run(TWO, NAMED))
        await outage.refuses()
        running.cancel()
        outage.on = False
        with pytest.raises(asyncio.CancelledError):
            await running
        assert act.begun == []
        run = await store.real.get_run(RUN_ID)
        assert (run.status, statuses(run)) == (RunStatus.CANCELED, ["canceled", "canceled"])

    async def test_twice_stops_at_once_and_leaves_the_record_to_reconcile(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        outage = Outage(store, "update_runs")
        act.hold("one/a", "one/b")
        running = asyncio.create_task(new_runner(store).run(TWO, NAMED))
        await act.begins("one/a", "one/b")
        outage.on = True
        running.cancel()
        await outage.refuses()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, PATIENCE)
        assert act.cancelled == ["one/a", "one/b"]
        assert (await store.real.get_run(RUN_ID)).status is RunStatus.RUNNING

    async def test_twice_reaches_a_task_that_takes_its_time(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        told: list[str] = []

        async def slow_to_end(task: tenure.Task) -> TaskResult:
            for word in ("first", "second"):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    told.append(word)
            raise asyncio.CancelledError

        act.results["one/local"] = slow_to_end
        store = InMemoryStore()
        running = asyncio.create_task(new_runner(store).run(workflow(step("one")), NAMED))
        await act.begins("one/local")
        running.cancel()
        async with asyncio.timeout(PATIENCE):
            while told != ["first"]:
                await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, PATIENCE)
        assert told == ["first", "second"]
        assert (await store.get_run(RUN_ID)).status is RunStatus.RUNNING, "left to reconcile"

    async def test_real_commands_are_killed_without_grace_the_second_time(
        self, sqlite: Any, new_runner: NewRunner
    ) -> None:
        """A command that ignores TERM has five seconds; nobody waits for them twice."""
        onlooker = Onlooker()
        runner = new_runner(sqlite, recorders=[onlooker])
        cmd = "trap '' TERM; echo $$; for n in $(seq 600); do sleep 0.05; done"
        running = asyncio.create_task(runner.run(workflow(shell("one", cmd)), NAMED))
        async with asyncio.timeout(PATIENCE):
            while not onlooker.chunks:
                await asyncio.sleep(0.01)
        pid = int(onlooker.chunks[0].data)
        before = asyncio.get_running_loop().time()
        running.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.get_running_loop().time() - before < 4
        assert process_start(pid) is None

    async def test_a_cancelled_caller_does_not_disturb_other_runs(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner()
        act.hold("one/a", "one/b", "other/local")
        running = asyncio.create_task(runner.run(TWO))
        other = asyncio.create_task(runner.run(workflow(step("other"))))
        await act.begins("one/a", "other/local")
        running.cancel()
        await asyncio.wait([running])
        act.let_go("other/local")
        assert (await other).status is RunStatus.SUCCESS


class TestOfTheRunner:
    async def test_closing_it_ends_its_runs_truthfully_first(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/a", "one/b")
        runner = new_runner(any_store)
        running = [asyncio.create_task(runner.run(TWO)) for _ in range(2)]
        async with asyncio.timeout(PATIENCE):
            while len(act.begun) < 4:
                await asyncio.sleep(0.001)
        await runner.close()
        runs = [await each for each in running]
        assert {run.status for run in runs} == {RunStatus.CANCELED}
        assert runs[0].message == "the process that ran it was stopped"

    async def test_with_a_store_of_its_own(
        self, tmp_path: Path, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/a", "one/b")
        url = f"sqlite:///{tmp_path / 'runs.db'}"
        runner = new_runner(url)
        running = asyncio.create_task(runner.run(TWO, NAMED))
        await act.begins("one/a", "one/b")
        await runner.close()
        assert (await running).status is RunStatus.CANCELED
        assert (await new_runner(url).get_run(RUN_ID)).status is RunStatus.CANCELED


class TestByTime:
    async def test_the_runs_time_out_fails_it(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/a", "one/b")
        onlooker = Onlooker()
        runner = new_runner(any_store, recorders=[onlooker])
        run = await runner.run(TWO, tenure.RunOptions(timeout=0.05))
        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert (run.error.kind, run.error.message) == ("timeout", "the run timed out after 50ms")
        assert (run.error.step, run.error.failed_hosts, run.error.failed_count) == (
            "one",
            ("a", "b"),
            2,
        )
        assert hosts(run) == {"a": "failed", "b": "failed"}
        assert statuses(run) == ["failed", "skipped"]
        assert act.cancelled == ["one/a", "one/b"]
        await runner.close()
        *_, ended, _ = onlooker.events
        assert ended.error is not None
        assert (ended.type, ended.step, ended.error.kind) == ("step.failed", "one", "timeout")

    async def test_a_tolerated_step_does_not_make_it_a_success(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/local")
        played = workflow(step("one", continue_on_error=True))
        run = await new_runner().run(played, tenure.RunOptions(timeout=0.02))
        assert run.status is RunStatus.FAILED

    async def test_zero_means_as_long_as_it_takes(self, new_runner: NewRunner) -> None:
        run = await new_runner().run(TWO, tenure.RunOptions(timeout=0))
        assert run.status is RunStatus.SUCCESS

    async def test_a_steps_time_out_is_per_attempt_and_host(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/a", "one/a#2")
        played = workflow(step("one", timeout=0.05, retries=2), hosts=["a", "b"])
        run = await new_runner(any_store).run(played)
        assert run.status is RunStatus.SUCCESS
        assert act.cancelled == ["one/a", "one/a#2"]
        assert run.steps[0].hosts["a"].attempts == 3
        assert run.steps[0].hosts["b"].attempts == 1

    async def test_a_step_may_have_none_where_the_file_has_one(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("two/local", "one/local")
        limited = Defaults(timeout=0.02)
        flow = workflow(
            step("one", timeout="0s", needs=[]), step("two", needs=[]), defaults=limited
        )
        onlooker = Onlooker()
        running = asyncio.create_task(new_runner(recorders=[onlooker]).run(flow))
        await onlooker.hears("step.failed")
        act.let_go("one/local")
        run = await running
        assert [each.status for each in run.steps] == ["success", "failed"]

    async def test_a_step_that_timed_out_says_so(self, new_runner: NewRunner, act: Puppet) -> None:
        act.hold("one/local")
        run = await new_runner().run(workflow(step("one", timeout=0.02)))
        assert run.steps[0].hosts["local"].message == "timed out after 20ms"
        assert run.error is not None
        assert run.error.kind == "timeout"

    async def test_a_time_out_inside_the_action_is_the_actions_own(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/local"] = TimeoutError("the bank did not answer")
        run = await new_runner().run(workflow(step("one", timeout=60)))
        assert run.steps[0].hosts["local"].message == "the bank did not answer"
        assert run.error is not None
        assert run.error.kind == "exception"

    async def test_a_time_out_ends_the_whole_process_tree_and_keeps_its_last_words(
        self, any_store: Any, new_runner: NewRunner, tmp_path: Path
    ) -> None:
        pids = tmp_path / "pids"
        cmd = f"echo working; sleep 1000 & echo $! $$ > {pids}; wait"
        run = await new_runner(any_store).run(workflow(shell("one", cmd, timeout=0.5)))
        host = run.steps[0].hosts["local"]
        assert (host.status, host.message, host.stdout) == (
            "failed",
            "timed out after 500ms",
            "working\n",
        )
        assert all(process_start(int(pid)) is None for pid in pids.read_text().split())

    async def test_what_could_not_be_killed_is_not_tried_again(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/local"] = unkillable
        run = await new_runner().run(workflow(step("one", timeout=0.02, retries=5)))
        assert act.begun == ["one/local"]
        assert hosts(run) == {"local": "unknown"}
        assert run.status is RunStatus.FAILED
        assert run.unconfirmed_hosts == ("local",)
        said = run.steps[0].hosts["local"].message or ""
        assert said.startswith("timed out after 20ms, and then: process 1234")

    def test_no_process_of_this_suite_is_left(self, others: set[str]) -> None:
        assert {pid for pid in _children() if process_start(int(pid)) is not None} <= others


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(scope="module", autouse=True)
def others() -> set[str]:
    """Servers that other suites of this test process have started."""
    return _children()
