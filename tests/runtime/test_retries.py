"""Attempt after attempt, and how much of it is told."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tenure
from tenure.model.status import HostStatus, RunStatus
from tenure.ports.execution import TaskResult
from tenure.runtime.explain import explain
from tenure.stores.memory import InMemoryStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, PATIENCE, Between, Puppet, shell, step, workflow

RUN_ID = "a-run-with-trouble"
NAMED = tenure.RunOptions(run_id=RUN_ID)


async def test_a_host_is_tried_until_it_succeeds(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    act.results |= {"one/a": BROKEN, "one/a#2": ValueError("not yet")}
    run = await new_runner(any_store).run(workflow(step("one", retries=3), hosts=["a", "b"]))
    assert run.status is RunStatus.SUCCESS
    assert sorted(act.begun) == ["one/a", "one/a#2", "one/a#3", "one/b"]
    states = run.steps[0].hosts
    assert (states["a"].attempts, states["b"].attempts) == (3, 1)
    assert states["a"].message is None
    assert states["a"].exit_code is None


async def test_the_last_attempt_is_the_result(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    act.results |= {"one/a": ValueError("first"), "one/a#2": ValueError("second")}
    run = await new_runner(any_store).run(workflow(step("one", retries=1), hosts=["a"]))
    assert run.status is RunStatus.FAILED
    assert run.steps[0].hosts["a"].message == "ValueError: second"
    assert run.steps[0].hosts["a"].attempts == 2


async def test_an_unreachable_host_is_tried_again_and_a_skipped_one_is_not(
    new_runner: NewRunner, act: Puppet
) -> None:
    act.results |= {
        "one/a": TaskResult(status=HostStatus.UNREACHABLE),
        "one/b": TaskResult(status=HostStatus.SKIPPED),
    }
    await new_runner().run(workflow(step("one", retries=1), hosts=["a", "b"]))
    assert sorted(act.begun) == ["one/a", "one/a#2", "one/b"]


async def test_waits_grow(new_runner: NewRunner, act: Puppet) -> None:
    times: list[float] = []

    def fail(task: tenure.Task) -> TaskResult:
        times.append(asyncio.get_running_loop().time())
        return BROKEN

    act.results |= {"one/a": fail, "one/a#2": fail, "one/a#3": fail}
    retries = tenure.Retries(max=2, delay=0.02, backoff=3)
    await new_runner().run(workflow(step("one", retries=retries), hosts=["a"]))
    first, second = times[1] - times[0], times[2] - times[1]
    assert first >= 0.02
    assert second >= 0.06


async def test_a_cancel_ends_the_wait_between_two_attempts(
    new_runner: NewRunner, act: Puppet
) -> None:
    runner = new_runner()
    act.results["one/a"] = BROKEN
    retries = tenure.Retries(max=1, delay=1000)
    running = asyncio.create_task(
        runner.run(workflow(step("one", retries=retries), hosts=["a"]), NAMED)
    )
    await act.begins("one/a")
    await runner.cancel(RUN_ID)
    run = await asyncio.wait_for(running, PATIENCE)
    assert (run.status, run.steps[0].hosts["a"].status) == (RunStatus.CANCELED, "canceled")


async def test_each_attempt_is_told_while_the_next_one_runs(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    act.results |= {"one/a": BROKEN, "one/a#2": BROKEN}
    act.hold("one/a#2", "one/a#3")
    runner = new_runner(any_store)
    running = asyncio.create_task(runner.run(workflow(step("one", retries=2), hosts=["a"]), NAMED))
    for attempt in (2, 3):
        await act.begins(f"one/a#{attempt}")
        async with asyncio.timeout(PATIENCE):
            while (await runner.get_run(RUN_ID)).steps[0].hosts["a"].attempts != attempt:
                await asyncio.sleep(0.005)
        act.let_go(f"one/a#{attempt}")
    run = await running
    assert (run.status, run.steps[0].hosts["a"].attempts) == (RunStatus.SUCCESS, 3)


@pytest.mark.parametrize(("interval", "most"), [(0.0, 99), (1000.0, 2)])
async def test_an_interval_merges_progress_and_no_status(
    new_runner: NewRunner, act: Puppet, interval: float, most: int
) -> None:
    attempts = 8
    act.results |= {f"one/a#{number}": BROKEN for number in range(2, attempts)}
    act.results["one/a"] = BROKEN
    store = InMemoryStore()
    runner = new_runner(store, progress_interval=interval)
    retries = tenure.Retries(max=attempts, delay=0.002)
    run = await runner.run(workflow(step("one", retries=retries), hosts=["a"]))
    assert run.steps[0].hosts["a"].attempts == attempts
    assert run.version <= most
    if interval == 0:
        assert run.version > 3, "without an interval each attempt is told"
    told = [event.type for event in await store.read_events(run.run_id)]
    assert told == [
        "run.running",
        "step.running",
        "host.running",
        "host.success",
        "step.success",
        "run.success",
    ]


async def test_an_interval_does_not_hold_back_a_status(new_runner: NewRunner, act: Puppet) -> None:
    act.results["one/a"] = BROKEN
    act.hold("one/a#2")
    runner = new_runner(progress_interval=1000.0)
    played = workflow(step("one", retries=1), hosts=["a", "b"])
    running = asyncio.create_task(runner.run(played, NAMED))
    await act.begins("one/a#2")
    async with asyncio.timeout(PATIENCE):
        while (run := await runner.get_run(RUN_ID)).steps[0].hosts["b"].status != "success":
            await asyncio.sleep(0.005)
    assert run.steps[0].hosts["a"].attempts == 2, "what is known goes along"
    act.let_go("one/a#2")
    await running


async def test_items_are_tried_each_for_itself(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    act.results["one/a[1]"] = BROKEN
    run = await new_runner(any_store).run(
        workflow(step("one", loop=[1, 2], retries=1), hosts=["a"])
    )
    assert [item.attempts for item in run.steps[0].hosts["a"].items] == [1, 2]


async def test_a_command_is_tried_again_under_another_task_id(
    any_store: Any, new_runner: NewRunner
) -> None:
    cmd = 'echo "$TENURE_TASK_ID"; test "${TENURE_TASK_ID##*:}" = 2'
    run = await new_runner(any_store).run(workflow(shell("one", cmd, retries=4)))
    host = run.steps[0].hosts["local"]
    assert (host.status, host.attempts) == ("success", 2)
    assert host.stdout == f"{run.run_id}:0:local:2\n"


async def test_progress_waits_for_no_result_in_a_store_that_is_away(
    new_runner: NewRunner, act: Puppet
) -> None:
    """Attempts go on while the record cannot: they are of one task that runs."""
    store = Between(InMemoryStore())
    act.results |= {"one/a": BROKEN, "one/a#2": BROKEN}
    refused = 0

    async def away(real: Any, writes: Any) -> Any:
        nonlocal refused
        if "one/a" in act.begun and "one/a#3" not in act.ended:
            refused += 1
            raise tenure.StoreUnavailable("away")
        return await real(writes)

    store.rules["update_runs"] = away
    retries = tenure.Retries(max=2, delay=0.01)
    run = await new_runner(store).run(workflow(step("one", retries=retries), hosts=["a"]))
    assert (run.status, run.steps[0].hosts["a"].attempts) == (RunStatus.SUCCESS, 3)
    assert refused


class TestALongWait:
    """For the next attempt: the record says what failed, and until when nothing happens."""

    FLOW = workflow(step("one", retries=tenure.Retries(max=3, delay=3600)), hosts=["a"])

    async def waiting(self, runner: tenure.Runner) -> tenure.RunSnapshot:
        async with asyncio.timeout(PATIENCE):
            while not (run := await runner.get_run(RUN_ID)).steps[0].hosts["a"].message:
                await asyncio.sleep(0.005)
        return run

    async def test_is_told_and_explained(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/a"] = BROKEN
        runner = new_runner(any_store)
        running = asyncio.create_task(runner.run(self.FLOW, NAMED))
        await act.begins("one/a")
        run = await self.waiting(runner)
        host = run.steps[0].hosts["a"]
        said = r"attempt 1 of 4 failed \(it broke\); attempt 2 at (\S+ \S+) UTC"
        told = re.fullmatch(said, host.message or "")
        assert told is not None
        now = datetime.now(UTC)
        at = datetime.fromisoformat(told[1]).replace(tzinfo=UTC)
        assert timedelta(minutes=59) < at - now < timedelta(minutes=61)
        assert f"waits for host a (for 0s, {host.message})" in explain(run, now).text
        await runner.cancel(RUN_ID)
        await asyncio.wait_for(running, PATIENCE)

    async def test_costs_no_further_update(self, new_runner: NewRunner, act: Puppet) -> None:
        act.results["one/a"] = BROKEN
        runner = new_runner()
        running = asyncio.create_task(runner.run(self.FLOW, NAMED))
        await act.begins("one/a")
        waiting = await self.waiting(runner)
        assert waiting.version == 2, "born, and told of the failed attempt with the next one"
        assert waiting.steps[0].hosts["a"].attempts == 2
        await runner.cancel(RUN_ID)
        await asyncio.wait_for(running, PATIENCE)

    async def test_that_is_cut_short_counts_no_attempt_that_never_began(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/a"] = BROKEN
        runner = new_runner()
        running = asyncio.create_task(runner.run(self.FLOW, NAMED))
        await act.begins("one/a")
        await self.waiting(runner)
        await runner.cancel(RUN_ID)
        run = await asyncio.wait_for(running, PATIENCE)
        host = run.steps[0].hosts["a"]
        assert (host.status, host.attempts, host.message) == ("canceled", 1, "canceled on request")

    async def test_is_no_longer_told_of_once_the_host_succeeds(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/a"] = BROKEN
        retries = tenure.Retries(max=3, delay=1.0)
        run = await new_runner().run(workflow(step("one", retries=retries), hosts=["a"]))
        host = run.steps[0].hosts["a"]
        assert (host.status, host.attempts, host.message) == ("success", 2, None)

    async def test_of_an_item_is_explained_too(self, new_runner: NewRunner, act: Puppet) -> None:
        act.results["one/a[0]"] = BROKEN
        runner = new_runner()
        retries = tenure.Retries(max=3, delay=3600)
        flow = workflow(step("one", retries=retries, loop=["x"]), hosts=["a"])
        running = asyncio.create_task(runner.run(flow, NAMED))
        await act.begins("one/a[0]")
        async with asyncio.timeout(PATIENCE):
            while not (run := await runner.get_run(RUN_ID)).steps[0].hosts["a"].items[0].message:
                await asyncio.sleep(0.005)
        assert (
            "attempt 1 of 4 failed (it broke); attempt 2 at" in explain(run, datetime.now(UTC)).text
        )
        await runner.cancel(RUN_ID)
        await asyncio.wait_for(running, PATIENCE)
