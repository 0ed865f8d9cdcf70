"""``update_runs`` on PostgreSQL in batches of 200, against a process that has the very same rows at
hand, and only writes them down and sends them: what the store and the model add to what a client
and the server cannot do without. By one caller, who waits for each answer; and by two at the same
time, as many as the store has connections.

The last figure is what these two reach of 30,000 updates/s where pgbench commits the events of
2,800 runs/s one by one. It has no goal: on two cores the server alone does two thirds of that with
these rows, and whoever decides on the updates takes his time from the same cores.

400 runs are under way at a time. They go from their first update to their last before the next
begin, as the runs of a process do that has so many in flight; what is to be sent is made just
before, by whoever sends it, outside the measured time. After each such cohort it is the other's
turn, so that whatever else this machine does falls on both. The first ones do not count: nothing is
prepared yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

import psycopg
from tests.postgres.server import Server

from benchmarks.figures import Figure, typical, typical_turn
from benchmarks.pgbench import Pgbench
from benchmarks.postgres_server import durable_server, fresh_store
from benchmarks.workload import created, three_steps, updates_of
from tenure.model.errors import TenureError
from tenure.model.update import Update
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.batch import RunRows
from tenure.stores.postgres.statements import SQL, Call
from tenure.system import settle_down

BATCH = 200
RUNS = 2000
UPDATES = 4
"""Of a run, after its creation."""
ATTEMPTS = 16
UNCOUNTED = 1
HOSTS = ("web1",)
ASKED = 30_000
WHERE_PGBENCH_DOES = 2_800


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    rows = await _rows(server)
    alone = await _turns(server, rows, callers=1)
    pgbench = Pgbench(server)
    before = pgbench.runs_a_second()
    both = await _turns(server, rows, callers=2)
    asked = typical([before, pgbench.runs_a_second()]) * ASKED / WHERE_PGBENCH_DOES
    name = "postgres update_runs of 200"
    return [
        _against_bare(name, alone, at_least=0.8),
        _against_bare(f"{name}, two callers", both),
        Figure(
            name=f"{name}, two callers, against 30,000 : 2,800 of pgbench",
            unit="updates/s",
            ours=typical(both.ours),
            limit=asked,
        ),
    ]


def _against_bare(name: str, turns: _Turns, at_least: float | None = None) -> Figure:
    ours, limit = typical_turn(turns.ours, turns.bare)
    return Figure(name=name, unit="updates/s", ours=ours, limit=limit, at_least=at_least)


class _Turns(NamedTuple):
    ours: list[float]
    bare: list[float]


async def _turns(server: Server, rows: list[list[RunRows]], callers: int) -> _Turns:
    """Updates a second."""
    turns = _Turns([], [])
    for _ in range(ATTEMPTS):
        async for ours, bare in _in_turns(server, rows, callers):
            turns.ours.append(2 * BATCH * UPDATES / ours)
            turns.bare.append(2 * BATCH * UPDATES / bare)
    return turns


def _run_ids() -> list[str]:
    return [f"updated-{number:06}" for number in range(RUNS)]


async def _created(server: Server, name: str) -> PostgresStore:
    store = await fresh_store(server, name)
    for start in range(0, RUNS, BATCH):
        ids = _run_ids()[start : start + BATCH]
        await store.update_runs([created(three_steps(run_id, HOSTS)) for run_id in ids])
    return store


def _cohorts() -> Iterator[list[list[Update]]]:
    """Of so many runs each, all their updates: batch by batch, of two times 200 runs in turn."""
    for start in range(0, RUNS, 2 * BATCH):
        runs = [three_steps(run_id, HOSTS) for run_id in _run_ids()[start : start + 2 * BATCH]]
        lives = [updates_of(run) for run in runs]
        moments = [[next(life) for life in lives] for _ in range(UPDATES)]
        yield [half for moment in moments for half in (moment[:BATCH], moment[BATCH:])]


async def _in_turns(
    server: Server, rows: list[list[RunRows]], callers: int
) -> AsyncIterator[tuple[float, float]]:
    """Seconds for a cohort, ours and bare. The same rows have the same numbers in a database that
    was made in the same way."""
    store, other = await _created(server, "ours"), await _created(server, "bare")
    await other.close()
    lines = [await _connect(server.url("bare")) for _ in range(callers)]
    settle_down()  # as our own processes do
    async with store:
        for number, (calls, batches) in enumerate(zip(_cohorts(), rows, strict=True)):
            ours = await _seconds(_send(store, calls[i::callers]) for i in range(callers))
            bare = await _seconds(_play(line, batches[i::callers]) for i, line in enumerate(lines))
            if number >= UNCOUNTED:
                yield ours, bare
    for line in lines:
        await line.close()


async def _seconds(work: Iterable[Awaitable[None]]) -> float:
    start = perf_counter()
    await asyncio.gather(*work)
    return perf_counter() - start


async def _rows(server: Server) -> list[list[RunRows]]:
    """Those that the store writes, cohort by cohort, call by call."""
    written: list[RunRows] = []
    update = RunRows.update

    def noted(batch: RunRows) -> Call:
        written.append(batch)
        return update(batch)

    store = await _created(server, "noted")
    setattr(RunRows, "update", noted)  # noqa: B010
    try:
        async with store:
            for calls in _cohorts():
                await _send(store, calls)
    finally:
        setattr(RunRows, "update", update)  # noqa: B010
    return [written[start : start + 2 * UPDATES] for start in range(0, len(written), 2 * UPDATES)]


async def _send(store: PostgresStore, calls: Sequence[Sequence[Update]]) -> None:
    for updates in calls:
        for outcome in await store.update_runs(updates):
            if isinstance(outcome, TenureError):
                raise outcome


async def _connect(url: str) -> psycopg.AsyncConnection[tuple[object, ...]]:
    connection = await psycopg.AsyncConnection.connect(
        url, autocommit=True, cursor_factory=psycopg.AsyncRawCursor, prepare_threshold=0
    )
    own = (connection.info.backend_pid,)
    await connection.execute(SQL["for_prepared_statements"], own, prepare=False)
    return connection


async def _play(
    connection: psycopg.AsyncConnection[tuple[object, ...]], rows: list[RunRows]
) -> None:
    for batch in rows:
        name, *values = batch.update()
        await connection.execute(SQL[name], values)
