"""A process that is stopped in the middle of a large batch: what it has locked is free again soon,
and nothing of the batch was written."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from tenure.model.errors import LeaseHeld, StoreUnavailable
from tenure.model.leases import ClaimedRun
from tenure.stores.postgres import PostgresStore
from tenure.testing.factories import lease_request
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow

PATIENCE = 60.0
RUNS = 100
STOPPED_AT = 60
"""Of them: the server has a part by then, and waits for the next."""

WRITER = f"""
import asyncio, os, signal, sys
from tenure.model.status import Recovery
from tenure.stores.postgres import PostgresStore, deciding
from tenure.testing.factories import change_run, embedded_run

decide, seen = deciding.Deciding.from_memory, 0


def stops(*given):
    global seen
    seen += 1
    if seen == {STOPPED_AT}:
        os.kill(os.getpid(), signal.SIGSTOP)
    return decide(*given)


async def main(url):
    async with PostgresStore(url) as store:
        new = [embedded_run(seconds=1.0, recovery=Recovery.RESUME) for _ in range({RUNS})]
        await store.update_runs(new)
        runs = await asyncio.gather(*(store.get_run(each.snapshot.run_id) for each in new))
        print(runs[0].run_id, flush=True)
        deciding.Deciding.from_memory = stops
        try:
            outcomes = await store.update_runs([change_run(run, message="on") for run in runs])
            print("answered", [type(each).__name__ for each in outcomes], flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)


asyncio.run(main(sys.argv[1]))
"""


async def _claimed(store: PostgresStore, run_id: str) -> ClaimedRun:
    while True:
        with suppress(StoreUnavailable, LeaseHeld):  # locked, or not yet over
            return await store.claim_run(run_id, lease_request("owner-b"))
        await asyncio.sleep(0.1)


async def test_what_it_holds_is_free_again(postgres_going: TestDatabase) -> None:
    postgres_going.empty()
    command = [sys.executable, "-c", WRITER, postgres_going.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        try:
            async with PostgresStore(postgres_going.url) as store, asyncio.timeout(PATIENCE):
                run_id = (await asyncio.to_thread(writer.stdout.readline)).strip()
                await asyncio.to_thread(os.waitid, os.P_PID, writer.pid, os.WSTOPPED | os.WNOWAIT)
                taken = await _claimed(store, run_id)
                assert (taken.lease.fence, taken.snapshot.message) == (2, None)
                os.kill(writer.pid, signal.SIGCONT)
                said = await asyncio.to_thread(writer.stdout.readline)
                assert said.strip() == "StoreUnavailable"
        finally:
            writer.kill()
