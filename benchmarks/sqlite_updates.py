"""Updates on SQLite (WAL, FULL) against a bare connection that writes the very same rows.

The rows are not imitated: the writing statements of the store are recorded once, with their
values, and played back by the bare connection on a copy of the same database.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import apsw

from benchmarks.figures import Figure, seconds, typical_turn
from benchmarks.workload import created, three_steps, updates_of
from tenure.model.errors import TenureError
from tenure.model.update import Update
from tenure.stores.sqlite import SQLiteStore

BATCH = 200
BATCHES = 2
SINGLES = 20
ATTEMPTS = 30

Recorded = list[tuple[str, tuple[Any, ...]]]


def measure() -> list[Figure]:
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        batched = [f"batched-{number:06}" for number in range(BATCH * BATCHES)]
        alone = [f"alone-{number:06}" for number in range(SINGLES)]
        return [
            await _compare("sqlite update_runs of 200", Path(folder), batched, BATCH, 0.3),
            await _compare("sqlite update_run, one by one", Path(folder), alone, 1, 0.5),
        ]


async def _compare(
    name: str, folder: Path, run_ids: list[str], size: int, at_least: float
) -> Figure:
    """Ours and bare in turns, so that whatever else this machine does falls on both."""
    moments = list(zip(*(updates_of(three_steps(run_id)) for run_id in run_ids), strict=True))
    calls = [
        moment[start : start + size] for moment in moments for start in range(0, len(moment), size)
    ]
    ready, recorded = await _record(folder / f"{size}.db", run_ids, calls)
    rows = sum(len(statements) for statements in recorded)
    ours: list[float] = []
    bare: list[float] = []
    for attempt in range(ATTEMPTS):
        ours.append(rows / await _ours(folder / f"ours-{size}-{attempt}.db", run_ids, calls))
        bare.append(rows / _bare(_copy(ready, folder / f"bare-{size}-{attempt}.db"), recorded))
    written, limit = typical_turn(ours, bare)
    return Figure(
        name=name,
        unit="rows/s",
        ours=written,
        limit=limit,
        at_least=at_least,
    )


def _copy(source: Path, target: Path) -> Path:
    shutil.copy(source, target)
    return target


async def _send(store: SQLiteStore, updates: Sequence[Update]) -> None:
    if len(updates) == 1:
        await store.update_run(updates[0])
        return
    for outcome in await store.update_runs(updates):
        if isinstance(outcome, TenureError):
            raise outcome


async def _record(
    path: Path, run_ids: list[str], calls: Sequence[Sequence[Update]]
) -> tuple[Path, list[Recorded]]:
    """A database with the runs created, and what the calls then write."""
    recorded: list[Recorded] = []
    async with await SQLiteStore.open(path) as store:
        await store.update_runs([created(three_steps(run_id)) for run_id in run_ids])
        store._writer.connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        ready = _copy(path, path.with_suffix(".ready"))

        def note(_: object, sql: str, values: Any) -> bool:
            if sql.lstrip().startswith(("insert", "update", "delete")):
                recorded[-1].append((sql, tuple(values)))
            return True

        store._writer.connection.exec_trace = note
        for updates in calls:
            recorded.append([])
            await _send(store, updates)
    return ready, recorded


async def _ours(path: Path, run_ids: list[str], calls: Sequence[Sequence[Update]]) -> float:
    """By the process that owns the runs, as in real life."""
    async with await SQLiteStore.open(path) as store:
        await store.update_runs([created(three_steps(run_id)) for run_id in run_ids])
        loop = asyncio.get_running_loop()
        start = loop.time()
        for updates in calls:
            await _send(store, updates)
        return loop.time() - start


def _bare(path: Path, recorded: list[Recorded]) -> float:
    connection = apsw.Connection(str(path))
    for pragma in ("journal_mode = wal", "synchronous = full", "cache_size = -16000"):
        connection.execute(f"pragma {pragma}")
    # Sorted by statement, so that each is prepared once per commit: the best a caller can do.
    ordered = [
        [
            (sql, [values for _, values in group])
            for sql, group in groupby(sorted(statements, key=_sql), key=_sql)
        ]
        for statements in recorded
    ]

    def play() -> None:
        for statements in ordered:
            connection.execute("begin immediate")
            for sql, values in statements:
                connection.executemany(sql, values)
            connection.execute("commit")

    spent = seconds(play)
    connection.close()
    return spent


def _sql(statement: tuple[str, tuple[Any, ...]]) -> str:
    return statement[0]
