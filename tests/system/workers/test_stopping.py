"""A worker that is told to stop while its store is away. It waits for nobody who is silent."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractContextManager
from time import monotonic

import pytest

from tests.postgres.server import Server
from tests.system.workers.away import away
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import PATIENCE, Fleet, Leases, WorkerProcess, processes_of

pytestmark = pytest.mark.slow

DEAF = "trap '' TERM INT; while true; do sleep 0.1; done"
LONG = Leases(lease=60, renew=1, poll=0.1)
"""A lease that outlives the test; that the store is away is noticed soon."""
AT_ONCE = 4.0
"""Seconds from the second signal on, on a machine that may have other work to do. It means two."""
HALF_A_MINUTE = 33.0
"""Seconds from the first signal on, beside ``drain_timeout``: as much as is promised, and some."""


@pytest.fixture
def absence(store_url: str, request: pytest.FixtureRequest) -> AbstractContextManager[None]:
    postgres = store_url.startswith("postgres")
    server: Server | None = request.getfixturevalue("postgres_server") if postgres else None
    return away(store_url, server)


async def says(worker: WorkerProcess, words: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while words not in worker.complaints:
            assert worker.lives, worker.complaints
            await asyncio.sleep(0.02)


async def at_work(fleet: Fleet, drain_timeout: str) -> tuple[WorkerProcess, str]:
    """A worker, and its run, whose task is deaf."""
    fleet.leases = LONG
    worker = fleet.start(env={"TENURE_DRAIN_TIMEOUT": drain_timeout})
    await fleet.serving(worker)
    run_id = await fleet.submit(fleet.workflow(DEAF))
    await fleet.starts(run_id)
    return worker, run_id


async def ends_within(worker: WorkerProcess, seconds: float) -> int:
    begun = monotonic()
    try:
        async with asyncio.timeout(seconds):
            while worker.lives:
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"it lives {monotonic() - begun:.1f} s after the signal: {worker.complaints}")
    return await worker.ends()


async def nothing_left(run_id: str) -> None:
    """Its tasks have ended: only the record is to be written."""
    async with asyncio.timeout(PATIENCE):
        while processes_of([run_id]):
            await asyncio.sleep(0.02)


def spoken_plainly(worker: WorkerProcess) -> None:
    """What it said is ours: neither a driver's words, nor of runs that it has not."""
    for foreign in ("Traceback", "query ", "pipeline", "TimeoutError", " 0 runs"):
        assert foreign not in worker.complaints, worker.complaints
    first_words = [line.split("(")[0] for line in worker.complaints.splitlines()]
    assert len(first_words) == len(set(first_words)), f"said twice: {worker.complaints}"


async def test_a_second_signal_stops_it_at_once(
    fleet: Fleet, absence: AbstractContextManager[None]
) -> None:
    worker, run_id = await at_work(fleet, "30s")
    with absence:
        await says(worker, "the store does not answer")
        worker.send(signal.SIGTERM)
        await says(worker, "draining")
        worker.send(signal.SIGINT)
        assert await ends_within(worker, AT_ONCE) == 130
        assert not processes_of([run_id])
    assert worker.complaints.count("stopped at once; its runs go on with the next worker") == 1
    spoken_plainly(worker)
    assert (await fleet.get(run_id)).owner_id is not None, "it was given back, after all"


@ON_POSTGRES
async def test_so_it_does_where_its_runs_are_being_given_back(
    fleet: Fleet, absence: AbstractContextManager[None]
) -> None:
    worker, run_id = await at_work(fleet, "0.2s")
    with absence:
        worker.send(signal.SIGTERM)
        await nothing_left(run_id)
        await says(worker, "the store does not answer")
        worker.send(signal.SIGINT)
        assert await ends_within(worker, AT_ONCE) == 130
    assert worker.complaints.count("stopped at once") == 1
    spoken_plainly(worker)


@pytest.mark.long
async def test_one_signal_is_enough_in_half_a_minute(
    fleet: Fleet, absence: AbstractContextManager[None]
) -> None:
    worker, run_id = await at_work(fleet, "0.2s")
    with absence:
        worker.send(signal.SIGTERM)
        assert await ends_within(worker, HALF_A_MINUTE) == 0, worker.complaints
        assert not processes_of([run_id])
    assert "the store does not take 1 run back" in worker.complaints
    spoken_plainly(worker)
    assert (await fleet.get(run_id)).owner_id is not None


@pytest.mark.long
async def test_an_idle_one_goes_soon(fleet: Fleet, absence: AbstractContextManager[None]) -> None:
    fleet.leases = LONG
    worker = fleet.start()
    await fleet.serving(worker)
    with absence:
        worker.send(signal.SIGTERM)
        assert await ends_within(worker, HALF_A_MINUTE) == 0, worker.complaints
    spoken_plainly(worker)
