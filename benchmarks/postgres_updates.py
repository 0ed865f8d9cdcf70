"""``update_runs`` on PostgreSQL in batches of 200, against a bare connection that sends the very
same rows: what the store and the model add to what the server takes."""

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
from tenure.stores.postgres.statements import SQL

BATCH = 200
RUNS = 2000
ATTEMPTS = 3
HOSTS = ("web1",)

_Sent = list[tuple[str, ...]]


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(ATTEMPTS):
        spent, sent = await _ours(server)
        ours.append(spent)
        bare.append(await _bare(server, sent))
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


async def _ours(server: Server) -> tuple[float, _Sent]:
    store = await _created(server, "ours")
    sent: _Sent = []
    parameters = Batch.parameters

    def noted(batch: Batch) -> tuple[str, ...]:
        sent.append(parameters(batch))
        return sent[-1]

    calls = _calls()
    setattr(Batch, "parameters", noted)  # noqa: B010
    try:
        async with store:
            start = perf_counter()
            # Two at a time, as many as the store has connections.
            await asyncio.gather(_send(store, calls[::2]), _send(store, calls[1::2]))
            return perf_counter() - start, sent
    finally:
        setattr(Batch, "parameters", parameters)  # noqa: B010


async def _send(store: PostgresStore, calls: Sequence[Sequence[Update]]) -> None:
    for updates in calls:
        for outcome in await store.update_runs(updates):
            if isinstance(outcome, TenureError):
                raise outcome


async def _bare(server: Server, sent: _Sent) -> float:
    """The same rows have the same numbers in a database made in the same way."""
    store = await _created(server, "bare")
    await store.close()
    lines = [await _connect(server.url("bare")) for _ in range(2)]
    start = perf_counter()
    await asyncio.gather(_play(lines[0], sent[::2]), _play(lines[1], sent[1::2]))
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


async def _play(connection: psycopg.AsyncConnection[tuple[object, ...]], sent: _Sent) -> None:
    for values in sent:
        await connection.execute(SQL["update_runs"], values)
