"""What a task printed is in the record, however it came to its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.status import HostStatus, RunStatus
from tenure.ports.execution import TaskResult
from tenure.runtime.options import Timing
from tenure.stores.memory import InMemoryStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, Between, Outage, Puppet, step, unkillable, workflow

pytestmark = pytest.mark.slow

RUN_ID = "a-run-with-last-words"
NAMED = tenure.RunOptions(run_id=RUN_ID)
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
    running = asyncio.create_task(runner.run(played, NAMED))
    await act.begins(*labels)
    return running


async def test_after_a_time_out(any_store: Any, new_runner: NewRunner, talking: Puppet) -> None:
    talking.hold("one/a")
    run = await new_runner(any_store).run(workflow(step("one", timeout=0.2), hosts=["a"]))
    assert said(run) == ("failed", "working\n")


async def test_after_the_runs_time_out(new_runner: NewRunner, talking: Puppet) -> None:
    talking.hold("one/a")
    options = tenure.RunOptions(timeout=0.3)
    run = await new_runner().run(workflow(step("one"), hosts=["a"]), options)
    assert said(run) == ("failed", "working\n")


async def test_after_a_cancel(any_store: Any, new_runner: NewRunner, talking: Puppet) -> None:
    talking.hold("one/a", "one/b")
    runner = new_runner(any_store)
    running = await begun(runner, talking, "one/a", "one/b")
    await runner.cancel(RUN_ID)
    assert said(await running) == said(await running, "b") == ("canceled", "working\n")


async def test_after_the_process_was_stopped(new_runner: NewRunner, talking: Puppet) -> None:
    talking.hold("one/a")
    runner = new_runner()
    running = await begun(runner, talking, "one/a")
    await runner.close()
    assert said(await running) == ("canceled", "working\n")


async def test_after_a_cancel_between_two_attempts(new_runner: NewRunner, talking: Puppet) -> None:
    talking.results |= {"one/a": BROKEN, "one/a#2": BROKEN}
    runner = new_runner()
    retries = tenure.Retries(max=2, delay=0.01, backoff=100_000)
    running = await begun(runner, talking, "one/a#2", retries=retries)
    await runner.cancel(RUN_ID)
    run = await running
    assert said(run) == ("canceled", "again\n")
    assert (run.steps[0].hosts["a"].attempts, run.steps[0].hosts["a"].exit_code) == (2, 3)


async def test_when_the_lease_can_no_longer_be_trusted(
    new_runner: NewRunner, talking: Puppet
) -> None:
    store = Between(InMemoryStore())
    outage = Outage(store, "renew_leases")
    outage.on = True
    timing = Timing(lease_duration=3, renew_interval=0.1, control_interval=0.02, margin=2.7)
    talking.hold("one/a")
    run = await new_runner(store, timing=timing).run(workflow(step("one"), hosts=["a"]))
    assert run.status is RunStatus.INTERRUPTED
    assert said(run) == ("interrupted", "working\n")


@pytest.mark.parametrize("timeout", [0.2, None], ids=["time-out", "cancel"])
async def test_of_what_could_not_be_ended(
    any_store: Any, new_runner: NewRunner, talking: Puppet, timeout: float | None
) -> None:
    talking.results["one/a"] = unkillable
    runner = new_runner(any_store)
    running = await begun(runner, talking, "one/a", timeout=timeout, retries=1)
    if timeout is None:
        await runner.cancel(RUN_ID)
    run = await running
    assert said(run) == ("unknown", "working\n")
    assert run.steps[0].hosts["a"].attempts == 1, "beside it nothing is tried again"


async def test_of_an_action_that_waited_for_something_cancelled(
    new_runner: NewRunner, talking: Puppet
) -> None:
    async def wait_in_vain(task: tenure.Task) -> TaskResult:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return TaskResult()

    talking.results |= {"one/a": wait_in_vain, "one/a#2": wait_in_vain}
    run = await new_runner().run(workflow(step("one", retries=1), hosts=["a"]))
    assert said(run) == ("failed", "again\n")
    assert run.steps[0].hosts["a"].attempts == 2, "a failure like any other"


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


async def test_a_result_that_came_meanwhile_stands_when_another_is_refused(
    new_runner: NewRunner, talking: Puppet
) -> None:
    """Host a ends well while the refused result of host b is on its way."""
    store = Between(InMemoryStore())
    talking.hold("one/a", "one/b")
    talking.results["one/b"] = TaskResult(vars={"handle": object()})
    running = await begun(new_runner(store), talking, "one/a", "one/b")

    async def slowly(real: Any, writes: Any) -> Any:
        if "one/a" not in talking.ended:
            talking.let_go("one/a")
            await asyncio.sleep(0.01)
        return await real(writes)

    store.rules["update_runs"] = slowly
    talking.let_go("one/b")
    run = await running
    assert run.status is RunStatus.FAILED
    assert said(run) == ("success", "working\n")
    assert said(run, "b")[0] == "failed"


async def test_of_an_item_of_a_loop(new_runner: NewRunner, act: Puppet) -> None:
    act.says = {"one/a[0]": WORDS, "one/b[0]": WORDS}
    act.hold("one/a[0]", "one/b[0]")
    act.results["one/b[0]"] = TaskResult(vars={"handle": object()})
    running = await begun(new_runner(), act, "one/a[0]", "one/b[0]", loop=[1, 2])
    act.let_go("one/b[0]")
    host = (await running).steps[0].hosts["a"]
    assert (host.status, [(item.status, item.stdout) for item in host.items]) == (
        HostStatus.CANCELED,
        [(HostStatus.CANCELED, "working\n")],
    )
