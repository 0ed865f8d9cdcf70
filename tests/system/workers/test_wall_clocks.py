"""Workers whose wall clocks are wrong: an hour ahead, an hour behind, twice as fast.

The monotonic clocks are the machine's, as everywhere; PostgreSQL judges leases by its own. (With
SQLite the times in a journal are its writers', so wrong ones are told in it; leases are judged by
the boot clock.)
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import tenure
from tenure.model.status import RunStatus
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import UNDER_LOAD, Fleet
from tests.system.workers.load import Load, bring
from tests.system.workers.wrong_clock import (
    AHEAD,
    AHEAD_AND_TWICE_AS_FAST,
    BEHIND,
    HOUR,
    TWICE_AS_FAST,
    has_wrong_clock,
    with_clock,
)

pytestmark = pytest.mark.slow


@ON_POSTGRES
async def test_wrong_wall_clocks_change_nothing(fleet: Fleet) -> None:
    fleet.leases, gate = UNDER_LOAD, fleet.folder / "gate"
    for off in (AHEAD, BEHIND, TWICE_AS_FAST):
        fleet.start(env=with_clock(off))
    await fleet.serving(*fleet.workers)
    long = await fleet.submit(fleet.workflow(f"until test -e {gate}; do sleep 0.1; done"))
    await fleet.starts(long)
    begun = time.monotonic()
    await bring(Load(runs=10), fleet, random.Random(3))
    assert all(has_wrong_clock(worker.pid) for worker in fleet.workers)
    await asyncio.sleep(begun + 2 * fleet.leases.lease - time.monotonic())
    gate.touch()
    await fleet.all_ended()
    history = await fleet.sound()
    for run in history.runs.values():
        assert run is not None
        assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 0)


@ON_POSTGRES
async def test_a_lost_run_is_taken_over_by_a_worker_with_another_time(fleet: Fleet) -> None:
    """Neither sooner nor later than its lease says."""
    gate, told = fleet.folder / "gate", fleet.folder / "told"
    run_id = await fleet.submit(fleet.workflow(f"date +%s >> {told}; test -e {gate} || sleep 30"))
    first = fleet.start_odd(env=with_clock(BEHIND), elsewhere=True)
    await fleet.starts(run_id)
    second = fleet.start(env=with_clock(AHEAD_AND_TWICE_AS_FAST))
    await fleet.serving(second)
    gate.touch()
    before = await fleet.get(run_id)
    assert before.fence == 1
    await fleet.kill(first)
    run = await fleet.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
    assert has_wrong_clock(second.pid)
    off = [int(moment) - time.time() for moment in told.read_text().split()]
    # Tasks of `tenure worker` do not inherit what makes its clock wrong.
    assert off == pytest.approx([-HOUR, 0], abs=HOUR / 10)


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("off", [AHEAD, BEHIND])
async def test_why_a_run_waits_is_told_by_the_clock_of_the_store(fleet: Fleet, off: str) -> None:
    """On a machine whose own is wrong."""
    await fleet.serving(fleet.start())
    later = datetime.now(UTC) + timedelta(minutes=30)
    asks = tenure.PlanSettings(mode="manual-approve", approval_timeout="40m")
    flow = replace(fleet.workflow("true"), plan=asks)
    run_id = await fleet.submit(flow, run_after=later)

    async def told(*arguments: str) -> str:
        said = await fleet.command(*arguments, env=with_clock(off))
        return re.sub(r"(?<= )(29|28|39|38)m", "some minutes", said)

    assert await told("explain", run_id) == ("queued until it is approved, for some minutes more")
    waits = f"queued until {later:%Y-%m-%d %H:%M:%S} UTC, in some minutes"
    approved = await told("approve", run_id, "--by", "ada")
    assert approved == f"{run_id} is approved by ada; {waits}"
    assert await told("explain", run_id) == waits
    fleet.runs.remove(run_id)  # nobody waits until then
    await fleet.sound()
