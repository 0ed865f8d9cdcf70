"""A long history: reading one run, and a page of fifty, among a million against among a thousand.

The million is made by multiplying a thousand real runs in SQL; every table keeps its true shape.
Both files are in the system's cache, and the first rounds do not count: a store is opened once and
read for days, and until its inner pages have been seen once, the disk and the system's page faults
are measured.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

import apsw

from benchmarks.figures import Figure, typical, typical_turn
from benchmarks.workload import created, three_steps, updates_of
from tenure.model.errors import TenureError
from tenure.model.query import RunFilter
from tenure.model.status import RunStatus
from tenure.stores.sqlite import SQLiteStore

FEW, MANY = 1_000, 1_000_000
UNCOUNTED, TURNS, ROUNDS = 1500, 15, 60


def measure() -> list[Figure]:
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few.db", Path(folder) / "many.db"
        for path in (few, many):
            await _thousand(path)
        _multiply(many, MANY // FEW)
        for path in (few, many):
            _read_through(path)
        async with await SQLiteStore.open(few) as small, await SQLiteStore.open(many) as large:
            return [
                await _figure("get_run", small, large, lambda s: s.get_run(_any_id(s is large))),
                await _figure("list 50", small, large, lambda s: s.list_runs(limit=50)),
                await _figure(
                    "list 50 failed",
                    small,
                    large,
                    lambda s: s.list_runs(RunFilter(statuses=frozenset({RunStatus.FAILED}))),
                ),
                await _figure(
                    "list 50 of a workflow",
                    small,
                    large,
                    lambda s: s.list_runs(RunFilter(workflow_name="rolling-deploy")),
                ),
                await _figure(
                    "list 50 with a label",
                    small,
                    large,
                    lambda s: s.list_runs(RunFilter(labels={"team": "web"})),
                ),
            ]


async def _thousand(path: Path) -> None:
    """Ended runs, one in ten of them failed."""
    runs = [three_steps(_run_id(0, number), hosts=("web1",)) for number in range(FEW)]
    endings = [RunStatus.FAILED if n % 10 == 0 else RunStatus.SUCCESS for n in range(FEW)]
    async with await SQLiteStore.open(path) as store:
        await store.update_runs([created(run) for run in runs])
        moments = zip(
            *(updates_of(run, end) for run, end in zip(runs, endings, strict=True)), strict=True
        )
        for moment in moments:
            for outcome in await store.update_runs(moment):
                if isinstance(outcome, TenureError):
                    raise outcome


def _run_id(copy: int, number: int) -> str:
    return f"history-{copy:06}-{number:06}"


def _any_id(among_many: bool) -> str:
    return _run_id(random.randrange(MANY // FEW if among_many else 1), random.randrange(FEW))


def _multiply(path: Path, times: int) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("pragma synchronous = off; pragma cache_size = -400000")
    with connection:
        for table in ("run_specs", "steps", "tasks", "journal", "run_labels", "runs"):
            columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
            names = [name for name in columns if name != "number"]  # that SQLite gives by itself
            chosen = ", ".join(_copied(name) for name in names)
            connection.execute(
                f"insert into {table} ({', '.join(names)}) "
                f"with recursive copies(n) as (select 1 union all select n + 1 from copies "
                f"where n < ? - 1) select {chosen} from copies cross join {table} t "
                "order by copies.n",
                (times,),
            )
    connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    connection.close()
    os.sync()  # what is still being written back would be measured as well


def _read_through(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 22):
            pass


def _copied(column: str) -> str:
    return {
        "seq": f"t.seq + copies.n * {FEW}",
        "run_id": "printf('history-%06d', copies.n) || substr(t.run_id, 15)",
        "created_at": "t.created_at + copies.n * 1000000",
    }.get(column, f"t.{column}")


async def _figure(
    name: str,
    small: SQLiteStore,
    large: SQLiteStore,
    ask: Callable[[SQLiteStore], Awaitable[object]],
) -> Figure:
    await _spent(small, large, ask, UNCOUNTED)
    turns = [await _spent(small, large, ask, ROUNDS) for _ in range(TURNS)]
    among_many, among_few = typical_turn([turn[1] for turn in turns], [turn[0] for turn in turns])
    return Figure(
        name=f"sqlite {name}: 1,000,000 runs against 1,000",
        unit="ms",
        ours=among_many * 1000,
        limit=among_few * 1000,
        at_most=1.5,
    )


async def _spent(
    small: SQLiteStore,
    large: SQLiteStore,
    ask: Callable[[SQLiteStore], Awaitable[object]],
    rounds: int,
) -> tuple[float, float]:
    """Seconds, as is typical of so many rounds."""
    times: dict[SQLiteStore, list[float]] = {small: [], large: []}
    for _ in range(rounds):
        for store, spent in times.items():
            start = perf_counter()
            await ask(store)
            spent.append(perf_counter() - start)
    return typical(times[small]), typical(times[large])
