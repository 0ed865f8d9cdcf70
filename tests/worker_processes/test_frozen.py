"""A worker is frozen at a point where it is about to do something, or has just done it, until its
run is somebody else's; then it thaws, and believes that no time has passed.

The points are those of ``odd_worker``.
"""

from __future__ import annotations

import signal

import pytest

from tenure.model.status import RunStatus
from tests.worker_processes.fleet import Fleet
from tests.worker_processes.odd_worker import POINTS

pytestmark = pytest.mark.slow

WORK = "trap '' TERM; echo begins; sleep 0.3; echo goes on; sleep 0.3"
"""Deaf to requests, with output that comes in two parts."""
LASTS = f"{WORK}; test $TENURE_FENCE -gt 1 || for n in 1 2 3 4 5 6 7 8 9 10; do sleep 1; done"
"""Under its first owner it outlives the lease by far, unless somebody ends it."""
LASTING = {"in mid-command", "in mid-output", "before renewal"}
SPEAKS_AGAIN = {
    "after claim",
    "after intent",
    "before result",
    "in mid-output",
    "before the end",
}
"""Where there is something left to write that the frozen one had already made up its mind about."""


@pytest.mark.parametrize("point", POINTS)
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
    run = await fleet.ended(run_id)
    assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 1)
    history = await fleet.sound()
    assert second.process.returncode == 0
    answers = [line.split() for line in first.said if not line.startswith("freezes")]
    assert {how for _, how in answers} <= {"LeaseLost"}
    assert bool(answers) >= (point in SPEAKS_AGAIN)
    taken = next(e.version for e in history.journals[run_id] if e.type == "lease.taken_over")
    assert {e.fence for e in history.journals[run_id] if e.version >= taken} == {2}
