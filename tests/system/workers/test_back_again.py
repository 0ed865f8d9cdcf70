"""The store was away for longer than a lease, and is back. All its workers live: none of them takes
a run from another before that one had the chance to say what became of it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

import pytest

from tenure.testing.factories import lease_request
from tests.postgres.server import Server
from tests.system.workers.away import away
from tests.system.workers.conftest import ON_POSTGRES
from tests.system.workers.fleet import Fleet, Leases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ONE_RUN = ("--concurrency", "1")
SHORT = Leases(lease=6.0, renew=3.0, poll=0.2)
AT_ONCE = 1.0
"""Seconds. Who is careful waits for a renew interval; its last error was a moment before."""


@pytest.fixture
def absence(store_url: str, request: pytest.FixtureRequest) -> AbstractContextManager[None]:
    postgres = store_url.startswith("postgres")
    server: Server | None = request.getfixturevalue("postgres_server") if postgres else None
    return away(store_url, server)


async def happened(fleet: Fleet, run_id: str, kind: str) -> datetime:
    """When the newest of that kind did, by the store's clock."""
    events = await fleet.store.read_events(run_id)
    at: datetime = [event.at for event in events if event.type == kind][-1]
    return at


@ON_POSTGRES
async def test_who_had_no_room_meanwhile_leaves_it_to_its_owner(
    fleet: Fleet, absence: AbstractContextManager[None], tmp_path: Path
) -> None:
    fleet.leases, gate = SHORT, tmp_path / "gate"
    waits = f"until test -e {gate}; do sleep 0.05; done"
    lasts = f"test $TENURE_FENCE -gt 1 || test $TENURE_HOST = a || sleep 60; {waits}"
    theirs = await fleet.submit(fleet.workflow(lasts, hosts=("a", "b")))
    fleet.start(*ONE_RUN)
    await fleet.starts(theirs)
    ours = await fleet.submit(fleet.workflow(waits))
    await fleet.store.claim_run(ours, lease_request("somebody", seconds=0.01))
    fleet.start(*ONE_RUN)
    await fleet.starts(ours, fence=2)  # it is used to take what has expired
    with absence:
        gate.touch()
        await fleet.sees(lambda lines: sum(line.what == "end" for line in lines) == 2)
        await asyncio.sleep(SHORT.lease + SHORT.renew / 2)
    await fleet.ended(ours)
    run = await fleet.ended(theirs)
    assert run.takeovers == 1
    taken = await happened(fleet, theirs, "lease.taken_over")
    room = await happened(fleet, ours, "run.success")
    assert (taken - room).total_seconds() > AT_ONCE
    begun = [line for line in fleet.witness.lines() if line.what == "start"]
    assert [line.fence for line in begun if (line.run_id, line.host) == (theirs, "a")] == [1]
