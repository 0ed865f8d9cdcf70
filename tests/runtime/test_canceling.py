"""Ending runs early: by an operator, by the caller that awaits them, by their time; and what was
printed by then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.ports.execution import OutputChunk, TaskResult, Transport
from tenure.runtime.options import Timing
from tenure.stores.memory import InMemoryStore
from tenure.system import process_start
from tenure.transports.local import LocalTransport
from tenure.transports.routing import RoutingTransport
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
    until,
    workflow,
)

RUN_ID = "a-run-to-stop"
NAMED = tenure.RunOptions(run_id=RUN_ID)
TWO = workflow(step("one"), step("two"), hosts=["a", "b"])


def statuses(run: tenure.RunSnapshot) -> list[str]:
    return [each.status.value for each in run.steps]


def hosts(run: tenure.RunSnapshot, index: int = 0) -> dict[str, str]:
    return {name: host.status.value for name, host in run.steps[index].hosts.items()}


@pytest.mark.slow
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
        self, runner: tenure.Runner, act: Puppet
    ) -> None:

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
        await until(lambda: onlooker.chunks)
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

    async def test_during_an_outage_it_is_told_when_the_store_is_back(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        outage = Outage(store, "update_runs")
        runner = new_runner(store)
        running = await act.holding(runner.run(TWO, NAMED), "one/a", "one/b")
        outage.on = True
        act.let_go("one/a")
        await outage.refuses()
        await runner.cancel(RUN_ID)
        await until(lambda: act.cancelled == ["one/b"])
        outage.on = False
        run = await running
        assert (run.status, hosts(run)) == (RunStatus.CANCELED, {"a": "success", "b": "canceled"})


@pytest.mark.slow
class TestOfTheCall:
    """``task.cancel()`` on whoever awaits ``run``."""

    @pytest.mark.parametrize("many", [False, True], ids=["here", "tasks"])
    async def test_once_ends_the_run_truthfully_then_comes_out(
        self, any_store: Any, new_runner: NewRunner, act: Puppet, many: bool
    ) -> None:
        played = TWO if many else workflow(step("one"), step("two"), hosts=["a"])
        labels = ["one/a", "one/b"] if many else ["one/a"]
        running = await act.holding(new_runner(any_store).run(played, NAMED), *labels)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        run = await any_store.get_run(RUN_ID)
        assert run.status is RunStatus.CANCELED
        assert run.message == "the process that ran it was stopped"
        assert statuses(run) == ["canceled", "canceled"]
        assert set(hosts(run).values()) == {"canceled"}
        assert act.cancelled == labels

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
        running = await act.holding(new_runner(store).run(TWO, NAMED), "one/a", "one/b")
        outage.on = True
        running.cancel()
        await outage.refuses()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, PATIENCE)
        assert act.cancelled == ["one/a", "one/b"]
        assert (await store.real.get_run(RUN_ID)).status is RunStatus.RUNNING

    async def test_real_commands_are_killed_without_grace_the_second_time(
        self, sqlite: Any, new_runner: NewRunner
    ) -> None:
        """A command that ignores TERM has five seconds; nobody waits for them twice."""
        onlooker = Onlooker()
        runner = new_runner(sqlite, recorders=[onlooker])
        cmd = "trap '' TERM; echo $$; for n in $(seq 600); do sleep 0.05; done"
        running = asyncio.create_task(runner.run(workflow(shell("one", cmd)), NAMED))
        await until(lambda: onlooker.chunks)
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


@pytest.mark.slow
class TestOfTheRunner:
    async def test_closing_it_ends_its_runs_truthfully_first(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/a", "one/b")
        runner = new_runner(any_store)
        running = [asyncio.create_task(runner.run(TWO)) for _ in range(2)]
        await until(lambda: len(act.begun) >= 4)
        await runner.close()
        runs = [await each for each in running]
        assert {run.status for run in runs} == {RunStatus.CANCELED}
        assert runs[0].message == "the process that ran it was stopped"


@pytest.mark.slow
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

    async def test_zero_means_as_long_as_it_takes(self, runner: tenure.Runner) -> None:
        run = await runner.run(TWO, tenure.RunOptions(timeout=0))
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
        self, runner: tenure.Runner, act: Puppet
    ) -> None:
        act.results["one/local"] = lambda _: asyncio.sleep(0.05, TaskResult())
        act.hold("two/local")
        flow = workflow(step("one", timeout="0s"), step("two"), defaults=Defaults(timeout=0.02))
        run = await asyncio.wait_for(runner.run(flow), PATIENCE)
        assert [each.status for each in run.steps] == ["success", "failed"]

    async def test_a_time_out_inside_the_action_is_the_actions_own(
        self, runner: tenure.Runner, act: Puppet
    ) -> None:
        act.results["one/local"] = TimeoutError("the bank did not answer")
        run = await runner.run(workflow(step("one", timeout=60)))
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

    def test_no_process_of_this_suite_is_left(self, others: set[str]) -> None:
        assert {pid for pid in _children() if process_start(int(pid)) is not None} <= others


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(scope="module", autouse=True)
def others() -> set[str]:
    """Servers that other suites of this test process have started."""
    return _children()


TALKING = "a-run-with-last-words"
TALKED = tenure.RunOptions(run_id=TALKING)
WORDS = b"working\n"


@pytest.fixture
def talking(act: Puppet) -> Puppet:
    act.says = {"one/a": WORDS, "one/b": WORDS, "one/a#2": b"again\n"}
    return act


def said(run: tenure.RunSnapshot, host: str = "a") -> tuple[str, str | None]:
    state = run.steps[0].hosts[host]
    return state.status.value, state.stdout


async def begun(runner: tenure.Runner, act: Puppet, *labels: str, **fields: Any) -> Any:
    """A run of one step, once these have begun."""
    hosts = {label.partition("/")[2][0] for label in labels}
    played = workflow(step("one", **fields), hosts=sorted(hosts))
    running = asyncio.create_task(runner.run(played, TALKED))
    await act.begins(*labels)
    return running


@pytest.mark.slow
async def test_after_a_cancel_between_two_attempts(runner: tenure.Runner, talking: Puppet) -> None:
    talking.results |= {"one/a": BROKEN, "one/a#2": BROKEN}
    retries = tenure.Retries(max=2, delay=0.01, backoff=100_000)
    running = await begun(runner, talking, "one/a#2", retries=retries)
    await runner.cancel(TALKING)
    run = await running
    assert said(run) == ("canceled", "again\n")
    assert (run.steps[0].hosts["a"].attempts, run.steps[0].hosts["a"].exit_code) == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [0.2, None], ids=["time-out", "cancel"])
async def test_of_what_could_not_be_ended(
    any_store: Any, new_runner: NewRunner, talking: Puppet, timeout: float | None
) -> None:
    talking.results["one/a"] = unkillable
    runner = new_runner(any_store)
    running = await begun(runner, talking, "one/a", timeout=timeout, retries=1)
    if timeout is None:
        await runner.cancel(TALKING)
    run = await running
    assert said(run) == ("unknown", "working\n")
    assert run.steps[0].hosts["a"].attempts == 1, "beside it nothing is tried again"


@pytest.mark.slow
async def test_when_the_store_refuses_a_result_of_another_host(
    any_store: Any, new_runner: NewRunner, talking: Puppet
) -> None:
    talking.hold("one/a", "one/b")
    talking.results["one/b"] = TaskResult(vars={"handle": object()})
    running = await begun(new_runner(any_store), talking, "one/a", "one/b")
    talking.let_go("one/b")
    run = await running
    assert (run.status, run.error and run.error.kind) == (RunStatus.FAILED, "rejected")
    assert said(run) == ("canceled", "working\n")
    assert run.steps[0].hosts["a"].message == "canceled: its run failed"


THREE = ("a", "b", "c")
HOUR = 3600.0
LONG = Timing(lease_duration=1000 * HOUR, renew_interval=300 * HOUR, control_interval=0.01)


class Hours:
    """The clock of this test's event loop, further ahead whenever the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, patch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        real = loop.time
        patch.setattr(loop, "time", lambda: real() + self._ahead)

    def pass_by(self, hours: float) -> None:
        self._ahead += hours * HOUR


class SlowOnlooker(Onlooker):
    """While it looks at what a task printed, hours pass for that task."""

    def __init__(self, clock: Hours, hours: float) -> None:
        super().__init__()
        self._clock = clock
        self._hours = hours
        self.looked = asyncio.Event()

    def output(self, chunk: OutputChunk) -> None:
        super().output(chunk)
        self._clock.pass_by(self._hours)
        self.looked.set()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Hours:
    return Hours(asyncio.get_running_loop(), monkeypatch)


@pytest.fixture
async def one_at_a_time() -> AsyncIterator[Transport]:
    local = LocalTransport(most_processes=1)
    yield RoutingTransport({"local": local}, otherwise=local)
    await local.close()


@pytest.mark.slow
async def test_each_in_its_turn_has_all_the_time_it_was_given(
    new_runner: NewRunner, one_at_a_time: Transport, clock: Hours
) -> None:
    onlooker = SlowOnlooker(clock, 2)
    runner = new_runner(transport=one_at_a_time, recorders=[onlooker], timing=LONG)
    run = await runner.run(workflow(shell("one", "echo up", timeout="3h"), hosts=THREE))
    assert {name: each.message for name, each in run.steps[0].hosts.items()} == dict.fromkeys(THREE)
    assert run.status is RunStatus.SUCCESS
    assert len(onlooker.chunks) == len(THREE)


@pytest.mark.slow
async def test_one_that_takes_longer_in_its_turn_is_timed_out(
    new_runner: NewRunner, one_at_a_time: Transport, clock: Hours
) -> None:
    onlooker = SlowOnlooker(clock, 4)
    runner = new_runner(transport=one_at_a_time, recorders=[onlooker], timing=LONG)
    flow = workflow(shell("one", "echo up; exec sleep 1000", timeout="3h"), hosts=THREE)
    run = await runner.run(flow)
    assert {each.message for each in run.steps[0].hosts.values()} == {"timed out after 3h"}
    assert len(onlooker.chunks) == len(THREE)
