"""A worker with more to do than it has time for: its leases are renewed all the same."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from tenure.model.status import RunStatus
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import Fleet, Leases
from tests.system.workers.stalls import stalls

pytestmark = pytest.mark.slow

RUNS, HOSTS = 10, ("a", "b", "c", "d", "e")
RENEWALS = 3
UNHURRIED = Leases(lease=12.0, renew=2.0, poll=0.2)


@pytest.mark.timeout(120)
@ON_POSTGRES
async def test_fifty_busy_tasks_delay_no_renewal_by_more_than_half_an_interval(
    fleet: Fleet,
) -> None:
    """They print as much as they can, and callbacks hold up the event loop for 300 ms at a time,
    five of them by turns. Times are the store's: those that it promised with each renewal."""
    fleet.leases, gate = UNHURRIED, fleet.folder / "gate"
    flood = f"yes & flood=$!; until test -e {gate}; do sleep 1; done; kill $flood; wait"
    async with stalls() as stalled:
        first = fleet.start_odd(concurrency=RUNS, busy=5)
        for _ in range(RUNS):
            await fleet.submit(fleet.workflow(flood, hosts=HOSTS))
        await fleet.sees(lambda lines: len(lines) == RUNS * len(HOSTS))
        fleet.start()
        first.send(signal.SIGUSR1)
        await first.says("busy")
        before = len(first.words_after("renewed"))
        await first.says("renewed", before + RENEWALS)
        first.send(signal.SIGUSR1)
        await first.says("idle")
        gate.touch()
        await fleet.all_ended()
        history = await fleet.sound()
    ends = [float(end) for (end,) in first.words_after("renewed")[: before + RENEWALS]]
    renewed = [datetime.fromtimestamp(end - fleet.leases.lease, UTC) for end in ends]
    for earlier, later in pairwise(renewed):
        late = (later - earlier).total_seconds() - stalled.between(earlier, later)
        assert late <= 1.5 * fleet.leases.renew
    for run in history.runs.values():
        assert run is not None
        assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 0)
