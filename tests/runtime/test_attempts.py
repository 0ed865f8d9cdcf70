"""Attempt after attempt, and how much of it is told."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.ports.execution import TaskResult
from tenure.runtime.explain import explain
from tenure.stores.memory import InMemoryStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, PATIENCE, Puppet, step, workflow
from tests.runtime_relay.senders import skipping

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


async def test_waits_grow(runner: tenure.Runner, act: Puppet) -> None:
    times: list[float] = []

    def fail(task: tenure.Task) -> TaskResult:
        times.append(asyncio.get_running_loop().time())
        return BROKEN

    act.results |= {"one/a": fail, "one/a#2": fail, "one/a#3": fail}
    retries = tenure.Retries(max=2, delay=0.02, backoff=3)
    await runner.run(workflow(step("one", retries=retries), hosts=["a"]))
    first, second = times[1] - times[0], times[2] - times[1]
    assert first >= 0.02
    assert second >= 0.06


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
        "run.queued",
        "run.running",
        "step.running",
        "host.running",
        "host.success",
        "step.success",
        "run.success",
    ]


async def test_an_interval_does_not_hold_back_a_status(new_runner: NewRunner, act: Puppet) -> None:
    act.results["one/a"] = BROKEN
    runner = new_runner(progress_interval=1000.0)
    played = workflow(step("one", retries=1), hosts=["a", "b"])
    running = await act.holding(runner.run(played, NAMED), "one/a#2")
    async with asyncio.timeout(PATIENCE):
        while (run := await runner.get_run(RUN_ID)).steps[0].hosts["b"].status != "success":
            await asyncio.sleep(0.005)
    assert run.steps[0].hosts["a"].attempts == 2, "what is known goes along"
    act.let_go("one/a#2")
    await running


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
        assert run.version == 2, "born, and told of the failed attempt with the next one"
        said = r"attempt 1 of 4 failed \(it broke\); attempt 2 at (\S+ \S+) UTC"
        told = re.fullmatch(said, host.message or "")
        assert told is not None
        now = datetime.now(UTC)
        at = datetime.fromisoformat(told[1]).replace(tzinfo=UTC)
        assert timedelta(minutes=59) < at - now < timedelta(minutes=61)
        assert f"waits for host a (for 0s, {host.message})" in explain(run, now).text
        await runner.cancel(RUN_ID)
        host = (await asyncio.wait_for(running, PATIENCE)).steps[0].hosts["a"]
        assert (host.status, host.attempts) == ("canceled", 1), "the second never began"

    async def test_is_no_longer_told_of_once_the_host_succeeds(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/a"] = BROKEN
        long = tenure.Timing(lease_duration=86400, renew_interval=3600)
        runner, skip = new_runner(timing=long), skipping()
        running = asyncio.create_task(runner.run(self.FLOW, NAMED))
        await act.begins("one/a")
        await self.waiting(runner)
        skip(3600)
        host = (await running).steps[0].hosts["a"]
        assert (host.status, host.attempts, host.message) == ("success", 2, None)
