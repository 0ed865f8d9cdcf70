"""Workers on PostgreSQL: how fast they drain a queue, alone and in pairs, against bare SKIP LOCKED.
(How soon an idle one begins what is submitted: ``worker_starts``.)"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from tests.postgres.server import Server

import tenure
from benchmarks.figures import Figure, typical, typical_turn
from benchmarks.postgres_claims import _bare as bare_claims
from benchmarks.postgres_server import commits, durable_server, fresh_store
from benchmarks.runs import no_op_workflow

RUNS = 3000
TURNS = 5


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    bares: list[float] = []
    ones: list[float] = []
    twos: list[float] = []
    shares: list[float] = []
    for _ in range(TURNS):  # so that all meet the same troubles of the machine
        bares.append(await bare_claims(server))
        rate, share = await _drained(server, 1)
        ones.append(rate)
        shares.append(share)
        twos.append((await _drained(server, 2))[0])
    alone, bare = typical_turn(ones, bares)
    two, one = typical_turn(twos, ones)
    return [
        Figure(
            name="queued one-step runs drained by one worker",
            unit="runs/s",
            ours=alone,
            limit=bare,
            at_least=0.112,
        ),
        Figure(name="by two, against one", unit="runs/s", ours=two, limit=one, at_least=1.0),
        Figure(
            name="transactions per drained run",
            unit="transactions",
            ours=typical(shares),
            limit=0.3,
            at_most=1.0,
        ),
    ]


@contextmanager
def _workers(server: Server, name: str, count: int) -> Iterator[None]:
    url = server.url(name, prepared="yes")
    command = [sys.executable, "-m", "benchmarks.worker_process", url, os.devnull]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
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
