"""Workers whose wall clocks are wrong: an hour ahead, an hour behind, twice as fast.

The monotonic clocks are the machine's, as everywhere; PostgreSQL judges leases by its own. (With
SQLite the times in a journal are its writers', so wrong ones are told in it; leases are judged by
the boot clock.)
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tenure.model.status import RunStatus
from tests.worker_processes.fleet import UNDER_LOAD, Fleet
from tests.worker_processes.load import Load, bring

pytestmark = pytest.mark.slow

HOUR = 3600.0
WRONG = [{"ahead": HOUR}, {"ahead": -HOUR}, {"speed": 2.0}]


async def test_wrong_wall_clocks_change_nothing(fleet: Fleet) -> None:
    fleet.leases = UNDER_LOAD
    for oddity in WRONG:
        fleet.start_odd(**oddity, elsewhere=True)
    long = await fleet.submit(fleet.workflow(f"sleep {2 * fleet.leases.lease}"))
    await asyncio.gather(fleet.ended(long), bring(Load(runs=10), fleet, random.Random(3)))
    await fleet.all_ended()
    history = await fleet.sound()
    for run in history.runs.values():
        assert run is not None
        assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 0)


async def test_a_lost_run_is_taken_over_by_a_worker_with_another_time(fleet: Fleet) -> None:
    """Neither sooner nor later than its lease says."""
    gate = fleet.folder / "gate"
    run_id = await fleet.submit(fleet.workflow(f"test -e {gate} || sleep 30"))
    first = fleet.start_odd(ahead=-HOUR, elsewhere=True)
    await fleet.starts(run_id)
    second = fleet.start_odd(ahead=HOUR, speed=2.0, elsewhere=True)
    await fleet.serving(second)
    gate.touch()
    before = await fleet.get(run_id)
    assert before.fence == 1
    await fleet.kill(first)
    run = await fleet.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
