"""Whole runs on every kind of store: what they cost, and what remains of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.status import HostStatus, RunStatus
from tenure.model.update import Update
from tenure.ports.execution import TaskResult
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, Between, Puppet, shell, step, workflow


async def test_a_run_ends_as_its_steps_do(any_store: Any, new_runner: NewRunner) -> None:
    run = await new_runner(any_store).run(
        workflow(step("one"), shell("two", "echo hello; echo oh >&2"))
    )
    assert run.status is RunStatus.SUCCESS
    assert [each.status for each in run.steps] == ["success", "success"]
    said = run.steps[1].hosts["local"]
    assert (said.stdout, said.stderr, said.exit_code) == ("hello\n", "oh\n", 0)
    assert run.owner_id is None
    assert run.started_at is not None
    assert run.finished_at is not None


async def test_a_failure_is_a_result_and_no_exception(
    any_store: Any, new_runner: NewRunner
) -> None:
    run = await new_runner(any_store).run(
        workflow(shell("one", "echo bad luck >&2; exit 3"), step("two"))
    )
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert (run.error.step, run.error.host, run.error.exit_code) == ("one", "local", 3)
    assert run.error.stderr_tail == "bad luck\n"
    assert run.steps[1].status == "skipped"


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("hosts", [["a"], ["a", "b", "c"]])
async def test_n_steps_cost_n_plus_one_updates(
    any_store: Any, new_runner: NewRunner, act: Puppet, count: int, hosts: list[str]
) -> None:
    """The birth carries the first start, each end the next start, the last end the run's."""
    steps = [step(f"s{number}") for number in range(count)]
    for number in range(count):
        act.hold(*(f"s{number}/{host}" for host in hosts))
    runner = new_runner(any_store)

    async def together() -> None:
        for number in range(count):
            labels = [f"s{number}/{host}" for host in hosts]
            await act.begins(*labels)
            act.let_go(*labels)

    run, _ = await asyncio.gather(runner.run(workflow(*steps, hosts=hosts)), together())
    assert run.status is RunStatus.SUCCESS
    assert run.version == count + 1


async def test_a_skipped_step_costs_nothing_of_its_own(
    any_store: Any, new_runner: NewRunner
) -> None:
    steps = [step("one"), step("two", when="false"), step("three")]
    assert (await new_runner(any_store).run(workflow(*steps))).version == 3


async def test_a_loop_of_one_short_task(any_store: Any, new_runner: NewRunner, act: Puppet) -> None:
    run = await new_runner(any_store).run(workflow(step("one", loop=["x", "y"])))
    assert run.status is RunStatus.SUCCESS
    assert [item.status for item in run.steps[0].hosts["local"].items] == ["success", "success"]
    assert [act.tasks[label].vars["item"] for label in act.begun] == ["x", "y"]


async def test_a_first_step_that_is_skipped_is_in_the_record_before_the_next_runs(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    runner = new_runner(any_store)
    seen: list[tenure.RunSnapshot] = []

    async def look(task: tenure.Task) -> TaskResult:
        seen.append(await runner.get_run(task.run_id))
        return TaskResult()

    act.results["two/local"] = look
    await runner.run(workflow(step("one", when="false"), step("two")))
    assert [each.status for each in seen[0].steps] == ["skipped", "running"]


async def test_nothing_begins_before_its_start_is_durable(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    """Intent before effect. While a write is on its way there is time for whatever would begin too
    early; then the write's own starts must not have begun."""
    store = Between(any_store)
    names = ["one", "two", "reload", "reload"]
    announced: list[str] = []
    early: list[str] = []

    async def slowly(real: Any, given: Any) -> Any:
        starts = [label for write in _writes(given) for label in _starts(write, names)]
        await asyncio.sleep(0.005)
        early.extend(each for each in starts if act.begun.count(each) > announced.count(each))
        announced.extend(starts)
        return await real(given)

    store.rules |= dict.fromkeys(("create_run", "update_run", "update_runs"), slowly)
    played = workflow(
        step("one", concurrency=1),
        step("two", loop=[1, 2], notify=["reload"]),
        hosts=["a", "b"],
        handlers=[tenure.Handler(name="reload", action="act")],
    )
    run = await new_runner(store).run(played)
    assert run.status is RunStatus.SUCCESS
    assert early == []
    assert sorted(announced) == sorted(act.begun)
    assert len(announced) == 2 + 4 + 4


def _writes(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _starts(write: Any, names: list[str]) -> list[str]:
    """Labels of what begins with this write."""
    steps: dict[int, dict[str, Any]]
    if isinstance(write, Update):
        steps = {index: change.hosts for index, change in write.effect.changes.steps.items()}
    else:
        steps = {each.index: each.hosts for each in write.snapshot.steps}
    labels = []
    for index, hosts in steps.items():
        for host, state in hosts.items():
            label = f"{names[index]}/{host}"
            for position, item in dict(state.items or ()).items():
                if item.status is HostStatus.RUNNING:
                    labels.append(f"{label}[{position}]")
            if state.status is HostStatus.RUNNING and names[index] != "two":
                labels.append(label)
    return labels


async def test_a_result_is_in_the_record_before_what_depends_on_it_begins(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    runner = new_runner(any_store)
    seen: list[str] = []

    async def look(task: tenure.Task) -> TaskResult:
        run = await runner.get_run(task.run_id)
        seen.append(run.steps[0].hosts["local"].status)
        return TaskResult()

    act.results["two/local"] = look
    await runner.run(workflow(step("one"), step("two")))
    assert seen == ["success"]


async def test_variables_reach_later_steps_by_name_and_by_host(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    act.results["one/a"] = TaskResult(vars={"port": 1})
    act.results["one/b"] = TaskResult(vars={"port": 2})
    played = workflow(
        step("one"),
        step("two", args={"own": "${port}", "of_a": "${{ hosts['a'].port }}"}),
        hosts=["a", "b"],
    )
    run = await new_runner(any_store).run(played)
    assert run.status is RunStatus.SUCCESS, run.error
    assert act.tasks["two/b"].args == {"own": "2", "of_a": 1}
    assert "different values of port" in (run.steps[0].message or "")


async def test_exports_of_commands_and_handlers_in_the_right_order(
    any_store: Any, new_runner: NewRunner
) -> None:
    played = workflow(
        shell("make", 'echo "made=$TENURE_HOST-$item" >> "$TENURE_OUTPUT"', loop=["x", "y"]),
        shell("show", "printf %s $made", notify=["tell"]),
        handlers=[tenure.Handler(name="tell", action="cmd.run", args={"cmd": "echo told $made"})],
    )
    run = await new_runner(any_store).run(played)
    assert [each.name for each in run.steps] == ["make", "show", "tell"]
    assert run.steps[1].hosts["local"].stdout == "local-y"
    assert run.steps[2].hosts["local"].stdout == "told local-y\n"
    assert run.steps[2].kind == "handler"


async def test_a_task_knows_its_run_step_host_and_fence(
    any_store: Any, new_runner: NewRunner
) -> None:
    names = ("RUN_ID", "STEP", "HOST", "TASK_ID", "FENCE")
    cmd = "; ".join(f"echo $TENURE_{name}" for name in names)
    run = await new_runner(any_store).run(workflow(shell("one", cmd)))
    said = (run.steps[0].hosts["local"].stdout or "").split()
    assert said == [run.run_id, "one", "local", f"{run.run_id}:0:local:1", "1"]


async def test_a_host_that_cannot_be_reached_is_unreachable(
    any_store: Any, new_runner: NewRunner
) -> None:
    inventory = tenure.Inventory(hosts={"far": tenure.HostSpec(address="ssh://far.example")})
    far = tenure.Workflow(name="far", steps=[shell("one", "true")], inventory=inventory)
    run = await new_runner(any_store).run(far)
    assert run.status is RunStatus.FAILED
    host = run.steps[0].hosts["far"]
    assert host.status == "unreachable"
    assert "ssh://far.example" in (host.message or "")


async def test_no_more_tasks_at_once_than_concurrency(new_runner: NewRunner, act: Puppet) -> None:
    hosts = [f"h{number}" for number in range(6)]
    at_once: list[int] = []

    async def count(task: tenure.Task) -> TaskResult:
        at_once.append(len(act.begun) - len(act.ended))
        return TaskResult()

    for host in hosts:
        act.results[f"one/{host}"] = count
    run = await new_runner().run(workflow(step("one", concurrency=2), hosts=hosts))
    assert run.status is RunStatus.SUCCESS
    assert len(at_once) == 6
    assert max(at_once) <= 2


async def test_a_failing_action_tells_why(new_runner: NewRunner, act: Puppet) -> None:
    act.results |= {"one/a": ValueError("no such account"), "one/b": BROKEN}
    run = await new_runner().run(workflow(step("one"), hosts=["a", "b"]))
    assert run.steps[0].hosts["a"].message == "ValueError: no such account"
    assert run.steps[0].hosts["b"].exit_code == 3
    assert run.error is not None
    assert (run.error.kind, run.error.failed_count) == ("exception", 2)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda task: None, "not None"),
        (lambda task: {"a": 1}, "not {'a': 1}"),
        (lambda task: TaskResult(status=HostStatus.RUNNING), "not TaskResult(status="),
        (lambda task: TaskResult(vars=["x"]), "vars=['x']"),  # type: ignore[arg-type]
    ],
)
async def test_an_action_that_returns_nonsense_fails_its_host(
    new_runner: NewRunner, act: Puppet, returned: Any, said: str
) -> None:
    act.results["one/local"] = returned
    run = await new_runner().run(workflow(step("one")))
    assert run.status is RunStatus.FAILED
    assert said in (run.steps[0].hosts["local"].message or "")


async def test_a_message_that_is_no_text_does_not_harm_the_record(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    act.results["one/local"] = OSError(2, "missing", "caf\udce9")
    run = await new_runner(any_store).run(workflow(step("one")))
    assert (run.status, run.error and run.error.kind) == (RunStatus.FAILED, "exception")
    assert "missing" in (run.steps[0].hosts["local"].message or "")


async def test_an_action_that_waits_for_something_cancelled_fails(
    new_runner: NewRunner, act: Puppet
) -> None:
    async def wait_in_vain(task: tenure.Task) -> TaskResult:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return TaskResult()

    act.results |= {"one/a": wait_in_vain, "one/b": wait_in_vain, "two/a": wait_in_vain}
    run = await new_runner().run(
        workflow(step("one", continue_on_error=True), step("two", targets=["a"]), hosts=["a", "b"])
    )
    assert run.status is RunStatus.FAILED
    assert [each.status for each in run.steps] == ["failed", "failed"]
    assert "CancelledError" in (run.steps[1].hosts["a"].message or "")


async def test_a_fault_of_our_own_is_told_and_does_not_leave_the_run_running(
    any_store: Any, new_runner: NewRunner, act: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenure.runtime.schedule import Schedule as Unfolding

    act.hold("one/b", "one/a")
    runner = new_runner(any_store)
    running = asyncio.create_task(
        runner.run(workflow(step("one"), hosts=["a", "b"]), tenure.RunOptions(run_id="a-bad-day"))
    )
    await act.begins("one/a", "one/b")

    def fail(*args: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Unfolding, "settle", fail)
    act.let_go("one/a")
    with pytest.raises(ZeroDivisionError):
        await running
    run = await any_store.get_run("a-bad-day")
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert (run.error.kind, run.error.message) == (
        "internal",
        "the engine failed: ZeroDivisionError: a bug",
    )
    assert act.cancelled == ["one/b"]


async def test_variables_set_and_exported_add_up_in_the_environment(
    any_store: Any, new_runner: NewRunner
) -> None:
    """In the origin one ``env.set`` made every exported variable disappear."""
    played = workflow(
        tenure.Step(name="set", action="env.set", args={"env": {"A": "1"}}),
        shell("export", 'echo "B=2" >> "$TENURE_OUTPUT"'),
        shell("show", "printf %s-%s-%s $A $B ${C}"),
        vars={"C": 3},
    )
    run = await new_runner(any_store).run(played)
    assert run.steps[2].hosts["local"].stdout == "1-2-3"
