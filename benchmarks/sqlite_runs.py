"""Whole runs on SQLite (WAL, FULL): ours, every status durable, against bare SQLite that commits
the five events of such a run one by one."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter

import apsw

import tenure
from benchmarks.figures import Figure
from benchmarks.runs import many_runs, no_op_workflow
from tenure.stores.sqlite import SQLiteStore

RUNS = 2000
BARE_RUNS = 400
EVENTS = 5
ATTEMPTS = 5
EVENT = '[{"type":"host.success","status":"success","step":"step-1","step_index":1,"host":"local"}]'


def measure() -> list[Figure]:
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(ATTEMPTS):
            ours.append(asyncio.run(_ours(Path(folder) / f"ours-{attempt}.db")))
            bare.append(_bare(Path(folder) / f"bare-{attempt}.db"))
    return [
        Figure(
            name="sqlite: 3-step runs, 200 in flight",
            unit="runs/s",
            ours=max(ours),
            limit=max(bare),
            at_least=1.0,
        )
    ]


async def _ours(path: Path) -> float:
    async with await SQLiteStore.open(path) as store, tenure.Runner(store=store) as runner:
        workflow = no_op_workflow()
        await many_runs(runner, workflow, 100)
        start = perf_counter()
        await many_runs(runner, workflow, RUNS)
        return RUNS / (perf_counter() - start)


def _bare(path: Path) -> float:
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(
        "create table events (run text, number integer, at integer, body text, "
        "primary key (run, number)) without rowid"
    )
    start = perf_counter()
    for run in range(BARE_RUNS):
        for number in range(EVENTS):
            connection.execute("begin immediate")
            connection.execute(
                "insert into events values (?, ?, ?, ?)", (f"run-{run:08}", number, run, EVENT)
            )
            connection.execute("commit")
    spent = perf_counter() - start
    connection.close()
    return BARE_RUNS / spent
