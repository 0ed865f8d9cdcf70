"""More tasks than the transport bears at once: waiting for a turn is not the task's time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.ports.execution import OutputChunk, Transport
from tenure.runtime.options import Timing
from tenure.runtime.time_limit import TimeLimit
from tenure.transports.local import LocalTransport
from tenure.transports.routing import RoutingTransport
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Onlooker, shell, workflow

HOSTS = ("a", "b", "c")
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

    async def have_passed(self, hours: float) -> None:
        """And what was due meanwhile has happened."""
        self.pass_by(hours)
        for _ in range(3):
            await asyncio.sleep(0)


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
    run = await runner.run(workflow(shell("one", "echo up", timeout="3h"), hosts=HOSTS))
    assert {name: each.message for name, each in run.steps[0].hosts.items()} == dict.fromkeys(HOSTS)
    assert run.status is RunStatus.SUCCESS
    assert len(onlooker.chunks) == len(HOSTS)


@pytest.mark.slow
async def test_one_that_takes_longer_in_its_turn_is_timed_out(
    new_runner: NewRunner, one_at_a_time: Transport, clock: Hours
) -> None:
    onlooker = SlowOnlooker(clock, 4)
    runner = new_runner(transport=one_at_a_time, recorders=[onlooker], timing=LONG)
    flow = workflow(shell("one", "echo up; exec sleep 1000", timeout="3h"), hosts=HOSTS)
    run = await runner.run(flow)
    assert {each.message for each in run.steps[0].hosts.values()} == {"timed out after 3h"}
    assert len(onlooker.chunks) == len(HOSTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended_by", "status"), [("cancel", "canceled"), ("time-out of the run", "failed")]
)
async def test_those_that_wait_end_with_the_run(
    new_runner: NewRunner, one_at_a_time: Transport, clock: Hours, ended_by: str, status: str
) -> None:
    onlooker = SlowOnlooker(clock, 0)
    runner = new_runner(transport=one_at_a_time, recorders=[onlooker], timing=LONG)
    one = shell("one", "echo up; exec sleep 1000", timeout="5h")
    options = tenure.RunOptions(run_id="run-of-turns", timeout=4 * HOUR)
    running = asyncio.create_task(runner.run(workflow(one, hosts=HOSTS), options))
    async with asyncio.timeout(PATIENCE):
        await onlooker.looked.wait()
    if ended_by == "cancel":
        await runner.cancel("run-of-turns")
    else:
        clock.pass_by(4)
    async with asyncio.timeout(PATIENCE):
        run = await running
    assert {each.status for each in run.steps[0].hosts.values()} == {status}
    assert len(onlooker.chunks) == 1


async def test_time_goes_on_where_it_stood_still(clock: Hours) -> None:
    limit, passed = TimeLimit(3 * HOUR), []

    async def attempt() -> None:
        async with limit:
            await clock.have_passed(2)
            limit.count(waiting=1)
            await clock.have_passed(100)
            limit.count(waiting=-1, begun=1)
            passed.append(102)
            await clock.have_passed(2)
            passed.append(104)

    with pytest.raises(TimeoutError):
        await attempt()
    assert passed == [102]
    assert limit.expired


async def test_time_counts_while_another_command_of_the_attempt_has_its_turn(clock: Hours) -> None:
    async def attempt() -> None:
        async with TimeLimit(3 * HOUR) as limit:
            limit.count(begun=1)
            limit.count(waiting=1)
            await clock.have_passed(4)

    with pytest.raises(TimeoutError):
        await attempt()


async def test_what_cleans_up_after_the_time_out_is_not_timed(clock: Hours) -> None:
    cleaned_up = asyncio.Event()

    async def attempt() -> None:
        async with TimeLimit(3 * HOUR) as limit:
            try:
                await clock.have_passed(4)
            finally:
                limit.count(waiting=1)
                await clock.have_passed(4)
                limit.count(waiting=-1)
                cleaned_up.set()

    with pytest.raises(TimeoutError):
        await attempt()
    assert cleaned_up.is_set()
