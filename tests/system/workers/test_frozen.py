"""A worker is frozen at a point where it is about to do something, or has just done it, until its
run is somebody else's; then it thaws, and believes that no time has passed.

The points are those of ``standstill``.
"""

from __future__ import annotations

import asyncio
import signal

import pytest

import tenure
from tenure.aio import end
from tenure.brokers.redis_streams import RedisStreams
from tenure.model.status import RunStatus
from tests.brokers.server import Server
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import PATIENCE, Fleet, WorkerProcess
from tests.system.workers.standstill import AFTER_BEGINNING, BEFORE_BEGINNING, POINTS

pytestmark = pytest.mark.slow

WORK = "trap '' TERM; echo begins; sleep 0.1; echo goes on; sleep 0.1"
"""Deaf to requests, with output that comes in two parts."""
LASTS = f"{WORK}; test $TENURE_FENCE -gt 1 || for n in 1 2 3 4 5 6 7 8 9 10; do sleep 1; done"
"""Under its first owner it outlives the lease by far, unless somebody ends it."""
LASTING = {"in mid-command", "in mid-output", "before renewal"}
SPEAKS_AGAIN = {"after claim", "before result", "before the end"}
"""Where there is something left to write that the frozen one had already made up its mind about. (A
run that began is not given back: its lease is left to end.)"""
UNACKNOWLEDGED = "before acknowledgement"
"""Claimed in the store, and the broker does not know it yet."""
OTHERWISE = {UNACKNOWLEDGED, BEFORE_BEGINNING, AFTER_BEGINNING}
"""No run comes so far that was there before its worker, and is claimed."""
EVERY_LOOK = ("claim_runs", "find_waiting")


@pytest.mark.parametrize("point", [each for each in POINTS if each not in OTHERWISE])
@ON_POSTGRES
async def test_a_worker_that_thaws_after_its_run_was_taken_over_changes_nothing(
    fleet: Fleet, point: str
) -> None:
    work = LASTS if point in LASTING else WORK
    run_id = await fleet.submit(fleet.workflow(work, work, hosts=("a", "b")))
    first = fleet.start_odd(freeze=point)
    await fleet.is_frozen(first)
    second = fleet.start()
    await fleet.until(run_id, lambda run: run.fence == 2)
    if point != "before the end":
        await fleet.sees(lambda lines: any(line.fence == 2 for line in lines))
    first.send(signal.SIGCONT)
    await nothing_changed(fleet, run_id, first, second, speaks_again=point in SPEAKS_AGAIN)


@ON_POSTGRES
async def test_nor_one_that_had_not_acknowledged_its_hint(
    fleet: Fleet, valkey_server: Server
) -> None:
    """The broker hands it to somebody else, who is told by the store whose the run is."""
    valkey_server.empty()
    first = fleet.start_odd(freeze=UNACKNOWLEDGED, broker=valkey_server.url, blind_to=EVERY_LOOK)
    with valkey_server.client() as client:
        async with asyncio.timeout(PATIENCE):
            while not client.info("clients")["blocked_clients"]:
                assert first.lives, first.complaints
                await asyncio.sleep(0.02)
        run_id = await fleet.submit(fleet.workflow(WORK, WORK, hosts=("a", "b")))
        async with RedisStreams(valkey_server.url, fleet.leases.lease) as broker:
            await broker.publish("default", run_id)
        await fleet.is_frozen(first)
        assert (await fleet.get(run_id)).fence == 1
        second = fleet.start("--broker", valkey_server.url)
        await fleet.starts(run_id, fence=2)
        first.send(signal.SIGCONT)
        await nothing_changed(fleet, run_id, first, second, speaks_again=True)
        assert client.xlen("tenure:hints:default") == 0


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_nor_one_that_had_just_begun_its_run(fleet: Fleet) -> None:
    """In the commit that claimed it: so do most runs that come to a worker at rest."""
    first = fleet.start_odd(freeze=AFTER_BEGINNING)
    run_id = await frozen_with(fleet, first, fleet.workflow(WORK, WORK, hosts=("a", "b")))
    assert (await fleet.get(run_id)).status is RunStatus.RUNNING
    second = fleet.start()
    await fleet.starts(run_id, fence=2)
    first.send(signal.SIGCONT)
    await nothing_changed(fleet, run_id, first, second, speaks_again=True)


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_nor_one_that_was_about_to_begin_it(fleet: Fleet) -> None:
    """The run never was its own, so nothing is taken over."""
    held = fleet.folder / "held"
    flow = fleet.workflow(f"while test -e {held}; do sleep 0.05; done", hosts=("a", "b"))
    first = fleet.start_odd(freeze=BEFORE_BEGINNING)
    run_id = await frozen_with(fleet, first, flow)
    assert (await fleet.get(run_id)).status is RunStatus.QUEUED
    held.touch()
    fleet.start()
    await fleet.starts(run_id, fence=1)
    first.send(signal.SIGCONT)
    answers = await first.says("answered")
    held.unlink()
    run = await fleet.ended(run_id)
    assert (run.status, run.takeovers, run.fence) == (RunStatus.SUCCESS, 0, 1)
    await fleet.sound()
    assert first.words_after("answered") == answers == [["begin_run", "LeaseHeld"]]


@pytest.mark.parametrize("point", ["before result", "in mid-output"])
@ON_POSTGRES
async def test_nor_one_whose_event_loop_hung(fleet: Fleet, point: str) -> None:
    """Its keeper was there all the time, and did not keep what nobody drove."""
    work = LASTS if point in LASTING else WORK
    run_id = await fleet.submit(fleet.workflow(work, work, hosts=("a", "b")))
    first = fleet.start_odd(freeze=point, hung=True)
    await fleet.is_hung(first)
    second = fleet.start()
    await fleet.starts(run_id, fence=2)
    first.send(signal.SIGUSR1)
    await nothing_changed(fleet, run_id, first, second, speaks_again=point in SPEAKS_AGAIN)


async def frozen_with(fleet: Fleet, worker: WorkerProcess, flow: tenure.Workflow) -> str:
    """The run with which it froze, after some others: the first one it has to read the workflow
    of."""
    await fleet.serving(worker)
    freezing = asyncio.create_task(fleet.is_frozen(worker))
    while True:
        run_id = await fleet.submit(flow)
        ending = asyncio.create_task(fleet.ended(run_id))
        await asyncio.wait([freezing, ending], return_when=asyncio.FIRST_COMPLETED)
        await end(ending)
        if freezing.done():
            await freezing
            return run_id


async def nothing_changed(
    fleet: Fleet,
    run_id: str,
    first: WorkerProcess,
    second: WorkerProcess,
    *,
    speaks_again: bool,
) -> None:
    run = await fleet.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
    history = await fleet.sound()
    assert second.process.returncode == 0
    answers = first.words_after("answered")
    assert {how for _, how in answers} <= {"LeaseLost"}
    assert bool(answers) >= speaks_again
    taken = next(e.version for e in history.journals[run_id] if e.type == "lease.taken_over")
    assert {e.fence for e in history.journals[run_id] if e.version >= taken} == {2}
