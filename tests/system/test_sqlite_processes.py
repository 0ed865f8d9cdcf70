"""Twenty processes at once on one SQLite file: no lock error reaches anybody, nothing is lost.

This file is also the process: ``python test_sqlite_processes.py DATABASE SECONDS`` creates,
claims, renews and updates until its time is up, then says what it was promised.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import apsw
import msgspec
import pytest

from tenure.model.status import RunStatus
from tenure.model.update import Position
from tenure.stores.sqlite import SQLiteStore
from tenure.system import new_owner_id, new_run_id
from tenure.testing.factories import claim_request, end_run, finish_host, new_run, start_step

PROCESSES = 20
FEW = 4.0
MANY = pytest.param(20.0, marks=pytest.mark.long)
"""Seconds."""


class Promises(msgspec.Struct):
    """What one process was told is stored."""

    versions: dict[str, int] = {}
    ended: list[str] = []
    slowest: float = 0.0


async def work(database: str, seconds: float) -> Promises:
    promises = Promises()
    owner_id = new_owner_id()
    deadline = time.monotonic() + seconds
    async with await SQLiteStore.open(database) as store:
        while time.monotonic() < deadline:
            begun = time.monotonic()
            await one_round(store, owner_id, promises)
            promises.slowest = max(promises.slowest, time.monotonic() - begun)
    return promises


async def one_round(store: SQLiteStore, owner_id: str, promises: Promises) -> None:
    """Create a run, claim some run (of whichever process), and take it to its end."""
    run_id = new_run_id()
    created = await store.create_run(new_run(run_id=run_id, update_id=run_id))
    promises.versions[run_id] = created.version
    for claimed in await store.claim_runs(claim_request(owner_id, claim_id=new_run_id(), limit=2)):
        run, lease = claimed.snapshot, claimed.lease
        promises.versions[run.run_id] = run.version
        for update in (start_step, finish_host):
            receipt = await store.update_run(update(run))
            promises.versions[run.run_id] = receipt.version
            run = await store.get_run(run.run_id)
        (renewal,) = await store.renew_leases([lease], 60)
        assert renewal.ok, "a renewing owner lost its run"
        receipt = await store.update_run(end_run(run, RunStatus.FAILED))
        promises.versions[run.run_id] = receipt.version
        promises.ended.append(run.run_id)


def started(database: Path, seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, __file__, str(database), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [FEW, MANY])
async def test_twenty_processes_share_one_file(tmp_path: Path, seconds: float) -> None:
    database = tmp_path / "runs.db"
    processes = [started(database, seconds) for _ in range(PROCESSES)]
    promises: list[Promises] = []
    for process in processes:
        out, err = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0, err.decode()
        promises.append(msgspec.json.decode(out, type=Promises))

    ended = [run_id for said in promises for run_id in said.ended]
    assert len(ended) == len(set(ended)), "two processes ended the same run"
    assert all(said.ended for said in promises), "a process got nothing done"
    newest: dict[str, int] = {}
    for said in promises:
        for run_id, version in said.versions.items():
            newest[run_id] = max(version, newest.get(run_id, 0))
    await check_everything_is_there(database, newest, set(ended))


async def check_everything_is_there(
    database: Path, newest: dict[str, int], ended: set[str]
) -> None:
    async with await SQLiteStore.open(database) as store:
        for run_id, version in newest.items():
            run = await store.get_run(run_id)
            assert run.version == version, "an acknowledged write is gone, or one came from nowhere"
            assert run.ended == (run_id in ended)
            events = await store.read_events(run_id, Position())
            assert {event.version for event in events} == set(range(1, version + 1))
    with apsw.Connection(str(database)) as connection:
        assert connection.pragma("integrity_check") == "ok"
        assert connection.execute("select count(*) from runs").fetchall() == [(len(newest),)]


if __name__ == "__main__":
    said = asyncio.run(work(sys.argv[1], float(sys.argv[2])))
    sys.stdout.buffer.write(msgspec.json.encode(said))
