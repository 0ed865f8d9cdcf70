"""``update_runs`` on PostgreSQL in batches of 200, against a process that has the very same rows at
hand, and only writes them down and sends them: what the store and the model add to what a client
and the server cannot do without."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter

import psycopg
from tests.postgres.server import Server

from benchmarks.figures import Figure
from benchmarks.postgres_server import durable_server, fresh_store
from benchmarks.workload import created, three_steps, updates_of
from tenure.model.errors import TenureError
from tenure.model.update import Update
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.batch import Batch
from tenure.stores.postgres.session import Call
from tenure.stores.postgres.statements import SQL
from tenure.system import settle_down

BATCH = 200
RUNS = 2000
ATTEMPTS = 3
HOSTS = ("web1",)


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    ours: list[float] = []
    bare: list[float] = []
    rows = await _rows(server)
    for _ in range(ATTEMPTS):
        ours.append(await _ours(server))
        bare.append(await _bare(server, rows))
    updates = RUNS * 4
    return [
        Figure(
            name="postgres update_runs of 200",
            unit="updates/s",
            ours=updates / min(ours),
            limit=updates / min(bare),
            at_least=0.8,
        )
    ]


def _run_ids() -> list[str]:
    return [f"updated-{number:06}" for number in range(RUNS)]


async def _created(server: Server, name: str) -> PostgresStore:
    store = await fresh_store(server, name)
    for start in range(0, RUNS, BATCH):
        ids = _run_ids()[start : start + BATCH]
        await store.update_runs([created(three_steps(run_id, HOSTS)) for run_id in ids])
    return store


def _calls() -> list[list[Update]]:
    moments = zip(*(updates_of(three_steps(run_id, HOSTS)) for run_id in _run_ids()), strict=True)
    return [
        list(moment[start : start + BATCH]) for moment in moments for start in range(0, RUNS, BATCH)
    ]


async def _ours(server: Server) -> float:
    store = await _created(server, "ours")
    calls = _calls()
    settle_down()  # as our own processes do
    async with store:
        start = perf_counter()
        # Two at a time, as many as the store has connections.
        await asyncio.gather(_send(store, calls[::2]), _send(store, calls[1::2]))
        return perf_counter() - start


async def _rows(server: Server) -> list[Batch]:
    """Those that the store writes, call by call."""
    written: list[Batch] = []
    update = Batch.update

    def noted(batch: Batch) -> Call:
        written.append(batch)
        return update(batch)

    store = await _created(server, "noted")
    setattr(Batch, "update", noted)  # noqa: B010
    try:
        async with store:
            await _send(store, _calls())
    finally:
        setattr(Batch, "update", update)  # noqa: B010
    return written


async def _send(store: PostgresStore, calls: Sequence[Sequence[Update]]) -> None:
    for updates in calls:
        for outcome in await store.update_runs(updates):
            if isinstance(outcome, TenureError):
                raise outcome


async def _bare(server: Server, rows: list[Batch]) -> float:
    """The same rows have the same numbers in a database made in the same way."""
    store = await _created(server, "bare")
    await store.close()
    lines = [await _connect(server.url("bare")) for _ in range(2)]
    settle_down()
    start = perf_counter()
    await asyncio.gather(_play(lines[0], rows[::2]), _play(lines[1], rows[1::2]))
    spent = perf_counter() - start
    for line in lines:
        await line.close()
    return spent


async def _connect(url: str) -> psycopg.AsyncConnection[tuple[object, ...]]:
    connection = await psycopg.AsyncConnection.connect(
        url, autocommit=True, cursor_factory=psycopg.AsyncRawCursor, prepare_threshold=0
    )
    await connection.execute(SQL["for_prepared_statements"], prepare=False)
    return connection


async def _play(connection: psycopg.AsyncConnection[tuple[object, ...]], rows: list[Batch]) -> None:
    for batch in rows:
        name, *values = batch.update()
        await connection.execute(SQL[name], values)
