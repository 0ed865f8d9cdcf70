"""SQLite: a writer killed at any moment loses nothing acknowledged and leaves nothing half."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import apsw
import pytest

from tenure.model.leases import Purpose
from tenure.model.query import RunFilter
from tenure.model.status import RunStatus
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import annotate, claim_request, end_run
from tests.system.crash_writer import killed_writer

FEW = 10
MANY = pytest.param(50, marks=pytest.mark.long)
SEED = 2000
OPEN = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})


async def check(store: SQLiteStore, database: Path, run_id: str, promised: dict[int, str]) -> None:
    run = await store.get_run(run_id)
    kept = journal_of(database, run_id)
    assert [version for version, _ in kept] == list(range(1, run.version + 1))
    for version, update_id in promised.items():
        assert run.version >= version, "an acknowledged write is gone"
        assert kept[version - 1][1] == update_id
    if run.version > 2 and not run.ended and not run.annotations:
        step = run.steps[0]
        said = {run.message, step.message, step.hosts["web1"].message}
        assert said == {str(run.version - 1)}, "half of a write"
        assert (step.hosts["web1"].stdout or "").rstrip("x") in said


def journal_of(database: Path, run_id: str) -> list[tuple[int, str]]:
    """Read without the store."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    rows: list[tuple[Any, ...]] = connection.execute(
        "select journal.version, update_id from journal join runs using (seq) "
        "where run_id = ? order by journal.version",
        (run_id,),
    ).fetchall()
    connection.close()
    return [(version, update_id) for version, update_id in rows]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [FEW, MANY])
async def test_killed_writer_loses_nothing(tmp_path: Path, kills: int) -> None:
    database = tmp_path / "runs.db"
    promised: dict[str, dict[int, str]] = defaultdict(dict)
    for number in range(kills):
        promises = killed_writer(f"sqlite:///{database}", SEED + number)
        for run_id, version, update_id in promises:
            promised[run_id][version] = update_id
        async with await SQLiteStore.open(database) as store:
            left = (await store.list_runs(RunFilter(statuses=OPEN), limit=1000)).items
            for run_id in {run_id for run_id, _, _ in promises} | {run.run_id for run in left}:
                await check(store, database, run_id, promised[run_id])
            for run in left:
                if not (await store.get_run(run.run_id)).ended:
                    await go_on(store, run.run_id, run.owner_id or "")
    connection = apsw.Connection(str(database))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    assert len(promised) >= kills


async def go_on(store: SQLiteStore, run_id: str, dead_owner: str) -> None:
    """Life goes on: what the dead writer held is claimed at once and ended as interrupted."""
    await store.update_run(annotate(await store.get_run(run_id), found="dead"))
    request = claim_request(
        "undertaker",
        claim_id=run_id,
        limit=100,
        dead_owners=frozenset({dead_owner}),
        purpose=Purpose.RECONCILE,
    )
    for claimed in await store.claim_runs(request):
        await store.update_run(end_run(claimed.snapshot, RunStatus.INTERRUPTED))
    assert (await store.get_run(run_id)).status == RunStatus.INTERRUPTED
