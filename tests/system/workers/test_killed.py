"""Workers are killed, one after another, and replaced; their runs go on as if nothing had been."""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec.structs import replace

from tenure.model.status import RunStatus
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import UNDER_LOAD, Fleet, Leases, WorkerProcess
from tests.system.workers.load import Load, bring
from tests.system.workers.passing_on import percentile, taken_over
from tests.system.workers.stalls import stalls

RUNS, WORKERS, EACH = 150, 4, 3
AT_ONCE = WORKERS * EACH - 2
"""Runs that are open: whoever is killed has some, and there is room for those of the dead."""
LOAD = Load(runs=RUNS, at_once=AT_ONCE, shortest=0.2, longest=0.6)
"""About a minute of it."""
WITHOUT_END = 1_000_000
TEN_MINUTES = 600.0


@pytest.mark.slow
@ON_POSTGRES
async def test_a_task_that_will_not_end_is_gone_before_its_successor_begins(fleet: Fleet) -> None:
    """Its worker is known to be dead long before its lease ends, and long before it is gone."""
    fleet.leases = Leases(lease=20.0, renew=5.0)
    deaf = fleet.workflow("trap '' TERM; for n in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; done")
    run_id = await fleet.submit(deaf)
    first = fleet.start()
    await fleet.starts(run_id)
    fleet.start()
    await fleet.kill(first)
    run = await fleet.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
    await fleet.sound()


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_a_few_killings_lose_nothing(fleet: Fleet) -> None:
    await storm(fleet, replace(LOAD, runs=25), seed=5)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_minute_of_killing_loses_nothing(fleet: Fleet) -> None:
    await storm(fleet, LOAD, seed=5)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_ten_minutes_of_killing(fleet: Fleet) -> None:
    """In one go: what piles up with the killed, of leases, processes and history, piles up."""
    await storm(fleet, replace(LOAD, runs=WITHOUT_END), seed=6, seconds=TEN_MINUTES)


async def storm(fleet: Fleet, given: Load, seed: int, seconds: float | None = None) -> None:
    """Every second worker believes to be on another machine: that it is dead, only its lease
    tells. With ``seconds`` it goes on for so long, whatever is done by then."""
    fleet.leases, chance, enough = UNDER_LOAD, random.Random(seed), asyncio.Event()
    async with stalls() as stalled:
        workers = [start(fleet, number) for number in range(WORKERS)]
        load = asyncio.create_task(bring(given, fleet, chance, enough))
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, enough.set)
        while not load.done():
            await asyncio.wait([load], timeout=chance.uniform(1.0, 2.0))
            number = chance.randrange(WORKERS)
            await fleet.serving(workers[number])  # or none would ever begin, on a busy machine
            await fleet.kill(workers[number])
            workers[number] = start(fleet, number)
        await load
        await fleet.all_ended()
        history = await fleet.sound()
    assert {run and run.status for run in history.runs.values()} == {RunStatus.SUCCESS}
    took = [
        (gap.ended - gap.begun).total_seconds() - stalled.between(*gap)
        for gap in taken_over(history)
    ]
    assert took, "nothing was ever taken over"
    assert percentile(took, 0.99) <= 1.25 * fleet.leases.lease + fleet.leases.poll


def start(fleet: Fleet, number: int) -> WorkerProcess:
    return (
        fleet.start("--concurrency", str(EACH)) if number % 2 else fleet.start_odd(elsewhere=True)
    )
