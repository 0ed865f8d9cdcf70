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

from benchmarks.figures import Figure, seconds, typical
from benchmarks.workload import created, three_steps, updates_of
from tenure.model.errors import TenureError
from tenure.model.update import Update
from tenure.stores.sqlite import SQLiteStore

BATCH = 200
BATCHES = 6
SINGLES = 150

Recorded = list[tuple[str, tuple[Any, ...]]]


def measure() -> list[Figure]:
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        ids = [f"run-{number:08}" for number in range(BATCH * BATCHES + SINGLES)]
        ready = Path(folder) / "ready.db"
        async with await SQLiteStore.open(ready) as store:
            await store.update_runs([created(run_id) for run_id in ids])
        moments = list(zip(*(updates_of(three_steps(run_id)) for run_id in ids), strict=True))
        batched = BATCH * BATCHES
        batches = [
            moment[start : start + BATCH]
            for moment in moments
            for start in range(0, batched, BATCH)
        ]
        singles = [(moment[place],) for place in range(batched, len(ids)) for moment in moments]
        return [
            await _compare("sqlite update_runs of 200", Path(folder), ready, batches, 0.3),
            await _compare("sqlite update_run, one by one", Path(folder), ready, singles, 0.5),
        ]


async def _compare(
    name: str, folder: Path, ready: Path, calls: Sequence[Sequence[Update]], at_least: float
) -> Figure:
    recorded = await _record(_copy(ready, folder / "recording.db"), calls)
    rows = sum(len(statements) for statements in recorded)
    ours: list[float] = []
    bare: list[float] = []
    for attempt in range(3):
        ours.append(await _ours(_copy(ready, folder / f"ours{attempt}.db"), calls))
        bare.append(_bare(_copy(ready, folder / f"bare{attempt}.db"), recorded))
    return Figure(
        name=name,
        unit="rows/s",
        ours=rows / typical(ours),
        limit=rows / typical(bare),
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


async def _record(path: Path, calls: Sequence[Sequence[Update]]) -> list[Recorded]:
    recorded: list[Recorded] = []
    async with await SQLiteStore.open(path) as store:
        connection = store._writer.connection

        def note(_: object, sql: str, values: Any) -> bool:
            if sql.lstrip().startswith(("insert", "update", "delete")):
                recorded[-1].append((sql, tuple(values)))
            return True

        connection.exec_trace = note
        for updates in calls:
            recorded.append([])
            await _send(store, updates)
    return recorded


async def _ours(path: Path, calls: Sequence[Sequence[Update]]) -> float:
    async with await SQLiteStore.open(path) as store:
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
