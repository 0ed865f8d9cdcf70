"""Workers on PostgreSQL: how fast they drain a queue, alone and in pairs, and how soon an idle one
begins what is submitted. Against bare SKIP LOCKED, and a bare insert, NOTIFY and claim."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import psycopg
from tests.postgres.server import Server

import tenure
from benchmarks.figures import Figure
from benchmarks.postgres_claims import _bare as bare_claims
from benchmarks.postgres_server import commits, durable_server, fresh_store
from benchmarks.runs import no_op_workflow

RUNS = 3000
STARTS = 200
PAUSE = 0.03
"""Between two of them, so that the worker has been idle."""
STAMPED = tenure.Workflow(
    name="stamped", steps=[tenure.Step(name="stamp", action="benchmark.stamp")]
)
TABLE = """
create table jobs (id bigserial primary key, state text not null, body text not null);
create index on jobs (id) where state = 'queued'
"""
CLAIM = """
update jobs set state = 'running' where id = any(array(
  select id from jobs where state = 'queued' order by id limit 1 for update skip locked))
returning id
"""


@tenure.action("benchmark.stamp")
async def stamp() -> None:
    """Executed by the worker only: here it must be known."""


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    bare = await bare_claims(server)
    one, transactions = await _drained(server, 1)
    two, _ = await _drained(server, 2)
    limit = await _bare_starts(server)
    starts = await _starts(server)
    return [
        Figure(
            name="queued one-step runs drained by one worker",
            unit="runs/s",
            ours=one,
            limit=bare,
            at_least=0.112,
        ),
        Figure(name="by two, against one", unit="runs/s", ours=two, limit=one, at_least=1.0),
        Figure(
            name="transactions per drained run",
            unit="transactions",
            ours=transactions,
            limit=0.3,
            at_most=1.0,
        ),
        Figure(
            name="submit to first task, median",
            unit="s",
            ours=starts[49],
            limit=limit[49],
            at_most=1.7,
        ),
        Figure(
            name="submit to first task, p99",
            unit="s",
            ours=starts[98],
            limit=limit[98],
            at_most=3.0,
        ),
    ]


@contextmanager
def _workers(server: Server, name: str, count: int, *broker: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder, "stamps")
        command = [
            sys.executable, "-m", "benchmarks.worker_process", server.url(name, prepared="yes"),
            str(stamps), *broker,
        ]  # fmt: skip
        started = [subprocess.Popen(command) for _ in range(count)]
        try:
            yield stamps
        finally:
            for worker in started:
                worker.send_signal(signal.SIGTERM)
            for worker in started:
                worker.wait()


async def _drained(server: Server, workers: int) -> tuple[float, float]:
    """By the times in the record: from the first run that began to the last that ended."""
    name = f"drained_{workers}"
    store = await fresh_store(server, name)
    async with store, tenure.Runner(store) as runner:
        workflow = no_op_workflow(1)
        await asyncio.gather(*(runner.submit(workflow) for _ in range(RUNS)))
    before = commits(server, name)
    with _workers(server, name, workers):
        while (ended := _ended(server, name))[0] < RUNS:
            await asyncio.sleep(0.1)
    return RUNS / ended[1], (commits(server, name) - before) / RUNS


def _ended(server: Server, name: str) -> tuple[int, float]:
    with psycopg.connect(server.url(name)) as connection:
        row = connection.execute(
            "select count(finished_at), "
            "coalesce(extract(epoch from max(finished_at) - min(started_at)), 0) from tenure.runs"
        ).fetchone()
    return (int(row[0]), float(row[1])) if row else (0, 0.0)


async def _starts(server: Server, *broker: str) -> list[float]:
    name = "hinted" if broker else "started"
    store = await fresh_store(server, name)
    took: list[float] = []
    with _workers(server, name, 1, *broker) as stamps:
        async with store, tenure.Runner(store, broker=broker[0] if broker else None) as runner:
            for number in range(STARTS + 20):
                await asyncio.sleep(PAUSE)
                begun = time.monotonic_ns()
                await runner.submit(STAMPED)
                took.append((await _line(stamps, number) - begun) / 1e9)
    return quantiles(took[20:], n=100)


async def _line(stamps: Path, number: int) -> int:
    while not stamps.exists() or len(lines := stamps.read_text().splitlines()) <= number:
        await asyncio.sleep(0.001)
    return int(lines[number])


async def _bare_starts(server: Server) -> list[float]:
    """Inserted, notified, claimed by somebody who listens."""
    server.execute("create database bare_starts")
    server.execute(TABLE, "bare_starts")
    url = server.url("bare_starts")
    claimed: asyncio.Queue[int] = asyncio.Queue()
    listening = asyncio.Event()

    async def claim() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("listen jobs")
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
                listening.set()
                async for _ in connection.notifies():
                    await other.execute(CLAIM)
                    claimed.put_nowait(time.monotonic_ns())

    claiming = asyncio.create_task(claim())
    await listening.wait()
    took: list[float] = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for _ in range(STARTS):
            await asyncio.sleep(PAUSE)
            begun = time.monotonic_ns()
            async with connection.transaction():
                await connection.execute("insert into jobs (state, body) values ('queued', 'x')")
                await connection.execute("notify jobs")
            took.append((await claimed.get() - begun) / 1e9)
    claiming.cancel()
    await asyncio.wait([claiming])
    return quantiles(took, n=100)
