"""Seed 002, *Runner SHALL preserve run traceability across process restart*, where the process is
a worker. Each test is named after its scenario; ``tests/scenarios/test_seed_002.py`` has the rest.
"""

from __future__ import annotations

import signal

import pytest

from tenure.model.status import Recovery, RunStatus
from tests.system.workers.fleet import Fleet

pytestmark = pytest.mark.slow


async def test_historical_run_remains_queryable(fleet: Fleet) -> None:
    """WHEN the worker restarts THEN completed runs are still retrievable by run_id, unchanged."""
    fleet.start()
    done = await fleet.ended(await fleet.submit(fleet.workflow("echo one")))
    broken = await fleet.ended(await fleet.submit(fleet.workflow("exit 3")))
    await fleet.drain_all()
    fleet.start()
    await fleet.ended(await fleet.submit(fleet.workflow("echo two")))
    for run in (done, broken):
        assert await fleet.get(run.run_id) == run
    assert (done.status, broken.status) == (RunStatus.SUCCESS, RunStatus.FAILED)
    await fleet.sound()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["on this machine", "on another"])
async def test_in_progress_run_is_marked_interrupted_on_restart(
    fleet: Fleet, elsewhere: bool
) -> None:
    """WHEN a run that does not resume is found running and its worker gone THEN it is marked
    interrupted, with a reason: at once if the worker was here, else when its lease has ended."""
    run_id = await fleet.submit(fleet.workflow("sleep 30"), recovery=Recovery.INTERRUPT)
    first = fleet.start_odd(elsewhere=elsewhere)
    await fleet.starts(run_id)
    await fleet.kill(first)
    fleet.start()
    run = await fleet.ended(run_id)
    assert run.status is RunStatus.INTERRUPTED
    assert run.interrupted_reason
    assert [line.what for line in fleet.witness.lines()] == ["start"]
    await fleet.sound()


async def test_a_run_that_resumes_goes_on_after_a_restart(fleet: Fleet) -> None:
    """What the record says is done is not done again, and nothing else is lost."""
    gate = fleet.folder / "gate"
    works = ("true", f"test -e {gate} || sleep 30", "true")
    run_id = await fleet.submit(fleet.workflow(*works, hosts=("a", "b")))
    first = fleet.start()
    await fleet.starts(run_id, place=1)
    await fleet.kill(first)
    gate.touch()
    second = fleet.start()
    assert (await fleet.ended(run_id)).status is RunStatus.SUCCESS
    second.send(signal.SIGTERM)
    assert await second.ends() == 0
    history = await fleet.sound()
    again = [line for line in history.lines if line.what == "start" and line.fence == 2]
    assert {line.place for line in again} == {"1", "2"}
