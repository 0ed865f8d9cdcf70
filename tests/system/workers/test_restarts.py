"""Workers are restarted one after another, as for a new version, while there is work."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from tenure.model.status import RunStatus
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import UNDER_LOAD, Fleet
from tests.system.workers.load import Load, bring
from tests.system.workers.passing_on import handed_over, percentile
from tests.system.workers.stalls import stalls

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

WORKERS = 3
FEW = ("--concurrency", "4")
"""Runs for each worker, so that all of them have some."""
LOAD = Load(runs=500, at_once=6, hosts=("a", "b"), shortest=0.2, longest=0.6)
"""More than is needed."""
LONGEST_HAND_OVER = 1.0


@ON_POSTGRES
async def test_rolling_restarts_interrupt_nothing(fleet: Fleet) -> None:
    """Each gets two tenths of a second to end what it has, so that much is given back unfinished;
    there is always another to take it."""
    fleet.leases, chance = UNDER_LOAD, random.Random(2)
    async with stalls() as stalled:
        workers = [fleet.start(*FEW) for _ in range(WORKERS)]
        await fleet.serving(*workers)
        enough = asyncio.Event()
        load = asyncio.create_task(bring(LOAD, fleet, chance, enough))
        for leaving in workers:
            await fleet.serving(fleet.start(*FEW))
            leaving.send(signal.SIGTERM)
            assert await leaving.ends() == 0, leaving.complaints
        enough.set()
        await load
        await fleet.all_ended()
        history = await fleet.sound()
    assert {run and run.status for run in history.runs.values()} == {RunStatus.SUCCESS}
    assert sum(run.takeovers for run in history.runs.values() if run) == 0
    took = [
        (gap.ended - gap.begun).total_seconds() - stalled.between(*gap)
        for gap in handed_over(history)
    ]
    assert took, "nothing was given back unfinished"
    assert percentile(took, 0.99) < LONGEST_HAND_OVER
