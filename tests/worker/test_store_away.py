"""A store that is away, or takes nothing, while a worker has runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.model.errors import StillRunning, StoreUnavailable
from tenure.model.leases import ClaimRequest, Purpose
from tenure.model.status import Recovery, RunStatus
from tenure.ports.execution import Task, TaskResult
from tenure.testing.factories import lease_request
from tenure.testing.faults import METHODS
from tenure.worker import claims
from tenure.workflow.spec import Verify
from tests.runtime.puppets import PATIENCE, Between, Outage, Puppet, step, workflow
from tests.worker.conftest import NEXT, SHORT, Workers, eventually

# A store that reads and does not write (its disk is full) for longer than a lease lasts.
#
# Its owner has ended its tasks by then. When there is space again it says what they came to, and
# that nothing more starts: no start is told that never was.


pytestmark = pytest.mark.slow

WRITES = ("update_run", "update_runs")
OTHERS = ("renew_leases", "claim_runs", "claim_run", "begin_run", "release_lease")
TWO = workflow(step("one"), step("two", on_takeover="fail"))


class Disk:
    """Full from ``fills`` on: for claims until ``is_free``, for runs until ``takes_updates``."""

    def __init__(self, workers: Workers) -> None:
        self.door = Between(workers.store)
        self._updates = Outage(self.door, *WRITES)
        self._others = Outage(self.door, *OTHERS)

    def fills(self) -> None:
        self._updates.on = self._others.on = True

    async def refuses_an_update(self) -> None:
        await self._updates.refuses(self._updates.refused + 1)

    def takes_updates(self) -> None:
        self._updates.on = False

    def is_free(self) -> None:
        self._updates.on = self._others.on = False


@pytest.fixture
def disk(workers: Workers) -> Disk:
    return Disk(workers)


async def outlasted(workers: Workers, act: Puppet, disk: Disk, **options: Any) -> str:
    """A run whose first step has ended while the disk was full, until nobody trusts its lease."""
    act.hold("one/local")
    workers.start(store=disk.door, timing=SHORT)
    run_id = await workers.submit(TWO, **options)
    await act.begins("one/local")
    disk.fills()
    act.let_go("one/local")
    await disk.refuses_an_update()
    await asyncio.sleep(SHORT.trust)
    return run_id


def held_up(task: Task) -> TaskResult:
    time.sleep(SHORT.trust)
    return TaskResult()


def one_has_ended(run: tenure.RunSnapshot) -> bool:
    return run.steps[0].hosts["local"].status == "success"


async def started(workers: Workers, run_id: str) -> list[Any]:
    events = await workers.events(run_id)
    return [event.step for event in events if event.type == "host.running"]


async def test_what_ended_is_written_and_no_start(
    workers: Workers, act: Puppet, disk: Disk
) -> None:
    run_id = await outlasted(workers, act, disk)
    disk.takes_updates()
    run = await workers.until(run_id, one_has_ended)
    assert (run.status, run.steps[1].status) == (RunStatus.RUNNING, "pending")
    assert await started(workers, run_id) == ["one"]
    disk.is_free()
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
    assert act.begun == ["one/local", "two/local"]


async def test_all_that_ended_is_written(workers: Workers, act: Puppet, disk: Disk) -> None:
    """Also what ended while the first result could not be written."""
    hosts = ("a", "b", "c")
    act.hold(*(f"one/{host}" for host in hosts))
    workers.start(store=disk.door, timing=SHORT)
    run_id = await workers.submit(workflow(step("one", on_takeover="fail"), hosts=hosts))
    await act.begins(*(f"one/{host}" for host in hosts))
    disk.fills()
    act.let_go("one/a")
    await disk.refuses_an_update()
    act.let_go("one/b", "one/c")
    await asyncio.sleep(SHORT.trust)
    disk.takes_updates()
    await workers.until(
        run_id, lambda run: {each.status for each in run.steps[0].hosts.values()} == {"success"}
    )
    disk.is_free()
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
    assert sorted(act.begun) == ["one/a", "one/b", "one/c"]


async def test_of_what_nobody_saw_end_nothing_is_written(
    workers: Workers, act: Puppet, disk: Disk
) -> None:
    """Whoever goes on does with it as its step says."""
    act.hold("one/a", "one/b")
    act.results["one/b"] = StillRunning("process 1234 could not be killed")
    workers.start(store=disk.door, timing=SHORT)
    run_id = await workers.submit(workflow(step("one"), hosts=("a", "b")))
    await act.begins("one/a", "one/b")
    disk.fills()
    act.let_go("one/a")
    await disk.refuses_an_update()
    act.let_go("one/b")
    await asyncio.sleep(SHORT.trust)
    disk.takes_updates()
    await workers.until(run_id, lambda run: run.steps[0].hosts["a"].status == "success")
    disk.is_free()
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
    assert act.begun == ["one/a", "one/b", "one/b#2"]
    unseen = [each.fence for each in await workers.events(run_id) if each.type == "host.unknown"]
    assert unseen == [2], "said by who took it over"


async def test_what_a_probe_found_is_not_taken_for_the_task_s_own_end(
    workers: Workers, act: Puppet, disk: Disk, tmp_path: Path
) -> None:
    """It ended before its owner gave the run up: the next one asks again."""
    gate = tmp_path / "gate"
    probe = f"test $TENURE_HOST = b || until test -e {gate}; do sleep 0.05; done; exit 1"
    act.hold("one/a", "one/b")
    lost = workers.start(timing=SHORT)
    played = workflow(step("one", verify=Verify(cmd=probe)), hosts=("a", "b"))
    run_id = await workers.submit(played)
    await act.begins("one/a", "one/b")
    await workers.kill(lost)
    act.hold("one/b#2")
    workers.start(store=disk.door, timing=SHORT)
    await act.begins("one/b#2")
    disk.fills()
    act.let_go("one/b#2")
    await disk.refuses_an_update()
    gate.touch()
    await asyncio.sleep(SHORT.trust)
    disk.takes_updates()
    await workers.until(run_id, lambda run: run.steps[0].hosts["b"].status == "success")
    disk.is_free()
    run = await workers.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 2)
    assert run.steps[0].hosts["a"].status == "success"


async def test_one_that_does_not_resume_ends_without_a_further_start(
    workers: Workers, act: Puppet, disk: Disk
) -> None:
    run_id = await outlasted(workers, act, disk, recovery=Recovery.INTERRUPT)
    disk.takes_updates()
    run = await workers.ended(run_id)
    assert run.status is RunStatus.INTERRUPTED
    assert [each.status for each in run.steps] == ["success", "interrupted"]
    assert await started(workers, run_id) == ["one"]


async def test_who_wrote_in_between_does_not_bring_the_start_back(
    workers: Workers, act: Puppet, disk: Disk
) -> None:
    run_id = await outlasted(workers, act, disk)
    await workers.runner.annotate(run_id, {"seen": "yes"})
    disk.takes_updates()
    await workers.until(run_id, one_has_ended)
    assert await started(workers, run_id) == ["one"]


async def test_what_was_written_in_time_and_never_answered_is_not_said_twice(
    workers: Workers, act: Puppet, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """The start is in the record then: who goes on has to wonder, as the step says."""
    act.hold("one/local")
    workers.start(store=disk.door, timing=SHORT)
    run_id = await workers.submit(TWO)
    await act.begins("one/local")
    kept = disk.door.rules["update_runs"]

    async def lose(real: Any, *args: Any) -> Any:
        disk.door.rules["update_runs"] = kept
        disk.fills()
        await real(*args)
        raise StoreUnavailable("the answer was lost")

    disk.door.rules["update_runs"] = lose
    act.let_go("one/local")
    await disk.refuses_an_update()
    await asyncio.sleep(SHORT.trust)
    disk.takes_updates()
    await eventually(lambda: f"run {run_id} was lost" in caplog.text)
    disk.is_free()
    run = await workers.ended(run_id)
    assert (run.status, act.begun) == (RunStatus.FAILED, ["one/local"])
    assert run.error is not None
    assert "on_takeover" in (run.error.message or "")
    assert (await started(workers, run_id), run.takeovers) == (["one", "two"], 1)


async def test_nor_does_an_owner_whose_loop_was_held_up_write_a_start(
    workers: Workers, act: Puppet
) -> None:
    door = Between(workers.store)
    act.results["one/local"] = held_up
    worker = workers.start(store=door, timing=SHORT)
    run_id = await workers.submit(TWO)
    await act.begins("one/local")
    worker.drain()
    await workers.returns(worker)
    assert await started(workers, run_id) == ["one"]


async def test_nor_begin_what_was_written_in_time(workers: Workers, act: Puppet) -> None:
    door = Between(workers.store)

    async def late(real: Any, *args: Any) -> Any:
        receipts = await real(*args)
        time.sleep(SHORT.trust)
        return receipts

    door.rules["update_runs"] = late
    worker = workers.start(store=door, timing=SHORT)
    run_id = await workers.submit(TWO)
    await workers.until(run_id, lambda run: run.status is RunStatus.RUNNING)
    worker.drain()
    await workers.returns(worker)
    assert act.begun == []


async def test_that_nothing_can_be_claimed_is_said_once_and_its_end_once(
    workers: Workers, act: Puppet, caplog: pytest.LogCaptureFixture
) -> None:
    """What is refused is to take over the run; looks that find nothing go well in between."""
    door = Between(workers.store)
    run_id = await workers.submit(TWO)
    lost = lease_request("somebody", seconds=0.01)
    await workers.store.claim_run(run_id, lost)
    refused: list[ClaimRequest] = []

    async def full(real: Any, request: ClaimRequest) -> Any:
        if request.purpose is Purpose.EXECUTE and request.expired and len(refused) < 3:
            refused.append(request)
            raise StoreUnavailable("no space left")
        return await real(request)

    door.rules["claim_runs"] = full
    workers.start(store=door, timing=NEXT)
    await workers.ended(run_id)
    said = [each.split(" (")[0] for each in caplog.messages if "answer" in each]
    assert said == ["the store does not answer", "the store answers again"]
    assert len(refused) == 3


# A worker whose store neither answers nor lets go: a call that is cancelled fails instead, as a
# driver's may, and whoever bears errors asks again.


ONE = workflow(step("one"))


class Silence:
    """Of every call of a store, from when it ``begins``."""

    def __init__(self, store: Between) -> None:
        self._broken = asyncio.Event()
        self._on = False
        self.asked = asyncio.Event()
        store.rules.update(dict.fromkeys(METHODS, self._rule))

    def begins(self) -> None:
        self._on = True

    async def _rule(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._on:
            return await real(*args, **kwargs)
        self.asked.set()
        try:
            await self._broken.wait()
        except asyncio.CancelledError:
            raise tenure.StoreUnavailable("cannot leave while busy") from None


@pytest.fixture
async def silence(workers: Workers, act: Puppet) -> tuple[asyncio.Task[None], tenure.Worker]:
    """A worker at work, whose store is silent from now on."""
    store = Between(workers.store)
    silence = Silence(store)
    act.hold("one/local")
    worker = workers.start(store=store)
    await workers.submit(ONE)
    await act.begins("one/local")
    silence.begins()
    await asyncio.wait_for(silence.asked.wait(), PATIENCE)
    return workers.task_of(worker), worker


async def test_cancelled_twice_it_stops(
    silence: tuple[asyncio.Task[None], tenure.Worker], act: Puppet
) -> None:
    running, _ = silence
    for _ in range(2):
        running.cancel()
        await asyncio.wait([running], timeout=0.05)
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([running])
    assert running.cancelled()
    assert act.cancelled == ["one/local"]


@pytest.mark.slow
async def test_drained_it_gives_up_giving_back(
    silence: tuple[asyncio.Task[None], tenure.Worker],
    act: Puppet,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(claims, "_GIVING_BACK", 0.2)
    running, worker = silence
    worker.drain(at_once=True)
    async with asyncio.timeout(PATIENCE):
        await running
    assert act.cancelled == ["one/local"]
    assert "the store does not take 1 run back" in caplog.text


async def test_its_tasks_are_killed_before_anything_that_waits_for_the_store(
    workers: Workers,
) -> None:
    back, killed = asyncio.Event(), asyncio.Event()

    class Deaf(Puppet):
        """To whoever asks it to end, once: as a task is that traps SIGTERM."""

        async def apply(self, *args: Any) -> Any:
            try:
                return await super().apply(*args)
            except asyncio.CancelledError:
                try:
                    await asyncio.Event().wait()
                finally:
                    killed.set()

    class NeverLetsGo(Between):
        @asynccontextmanager
        async def listen(self, *_: Any) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await back.wait()

    act = Deaf()
    act.hold("one/local")
    workers.actions[act.spec.name] = act
    running = workers.task_of(workers.start(store=NeverLetsGo(workers.store)))
    await workers.submit(ONE)
    await act.begins("one/local")
    for _ in range(2):
        running.cancel()
        await asyncio.wait([running], timeout=0.05)
    async with asyncio.timeout(PATIENCE):
        await killed.wait()
    assert not running.done()
    back.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([running])
