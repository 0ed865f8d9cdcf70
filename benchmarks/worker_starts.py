"""How soon an idle worker on PostgreSQL begins what is submitted, against a bare insert, NOTIFY and
claim: two processes each, submitting and claiming, on the same server. They take turns, so that
whatever else this machine does falls on both."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import psycopg
from tests.postgres.server import Server

import tenure
from benchmarks.bare_worker import INSERT, TABLE
from benchmarks.figures import Figure
from benchmarks.postgres_server import durable_server, fresh_store

STARTS = 200
FIRST = 30
"""These do not count."""
PAUSE = 0.06
"""Between two of them: all is idle before each."""
STAMPED = tenure.Workflow(
    name="stamped", steps=[tenure.Step(name="stamp", action="benchmark.stamp")]
)

Submit = Callable[[], Awaitable[object]]
Started = tuple[Submit, asyncio.Queue[int]]
"""How to submit one, and the moments at which they began."""


@tenure.action("benchmark.stamp")
async def stamp() -> None:
    """Executed by the worker only: here it must be known."""


def measure() -> list[Figure]:
    with durable_server() as server:
        limit, ours = asyncio.run(_measure(server))
    return [
        Figure(
            name="submit to first task, median",
            unit="s",
            ours=ours[49],
            limit=limit[49],
            at_most=1.7,
        ),
        Figure(
            name="submit to first task, p99",
            unit="s",
            ours=ours[98],
            limit=limit[98],
            at_most=3.0,
        ),
    ]


async def _measure(server: Server) -> tuple[list[float], list[float]]:
    async with _bare(server) as one, begun_by_worker(server, "started") as other:
        return await in_turns(one, other)


async def in_turns(one: Started, other: Started) -> tuple[list[float], list[float]]:
    """Quantiles, in hundredths, of the seconds from submitting to the beginning of each."""
    first: list[float] = []
    second: list[float] = []
    for _ in range(STARTS + FIRST):
        first.append(await _start(*one))
        second.append(await _start(*other))
    return quantiles(first[FIRST:], n=100), quantiles(second[FIRST:], n=100)


async def _start(submit: Submit, heard: asyncio.Queue[int]) -> float:
    await asyncio.sleep(PAUSE)
    begun = time.monotonic_ns()
    await submit()
    return (await heard.get() - begun) / 1e9


@asynccontextmanager
async def _bare(server: Server) -> AsyncIterator[Started]:
    server.execute("create database bare_starts")
    server.execute(TABLE, "bare_starts")
    url = server.url("bare_starts")
    async with (
        _process("benchmarks.bare_worker", url) as heard,
        await psycopg.AsyncConnection.connect(
            url, autocommit=True, prepare_threshold=0
        ) as connection,
    ):
        await heard.get()

        async def submit() -> None:
            async with connection.transaction():
                await connection.execute(INSERT)
                await connection.execute("notify jobs")

        yield submit, heard


@asynccontextmanager
async def begun_by_worker(server: Server, name: str, *broker: str) -> AsyncIterator[Started]:
    store = await fresh_store(server, name)
    url = server.url(name, prepared="yes")
    async with (
        _process("benchmarks.worker_process", url, *broker) as heard,
        store,
        tenure.Runner(store, broker=broker[0] if broker else None) as runner,
    ):
        yield lambda: runner.submit(STAMPED), heard


@asynccontextmanager
async def _process(module: str, url: str, *broker: str) -> AsyncIterator[asyncio.Queue[int]]:
    """What it writes whenever it begins something."""
    heard: asyncio.Queue[int] = asyncio.Queue()
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder, "stamps")
        os.mkfifo(stamps)
        reading = os.open(stamps, os.O_RDONLY | os.O_NONBLOCK)

        def read() -> None:
            for line in os.read(reading, 65536).splitlines():
                heard.put_nowait(int(line))

        process = subprocess.Popen([sys.executable, "-m", module, url, str(stamps), *broker])
        asyncio.get_running_loop().add_reader(reading, read)
        try:
            yield heard
        finally:
            asyncio.get_running_loop().remove_reader(reading)
            process.send_signal(signal.SIGTERM)
            process.wait()
            os.close(reading)
