"""Whole runs on PostgreSQL (fsync, synchronous_commit): ours, every status durable, against
pgbench with 32 clients that commits the five events of such a run one by one, and against DBOS."""

from __future__ import annotations

import asyncio
from time import perf_counter

from tests.postgres.server import Server

import tenure
from benchmarks.figures import Figure, typical, typical_turn
from benchmarks.pgbench import Pgbench
from benchmarks.postgres_server import commits, durable_server, fresh_store
from benchmarks.rivals import dbos_rate
from benchmarks.runs import many_runs, no_op_workflow
from tenure.system import settle_down

RUNS = 3000
TURNS = 5


def measure() -> list[Figure]:
    limits: list[float] = []
    rates: list[float] = []
    shares: list[float] = []
    with durable_server() as server:
        pgbench = Pgbench(server)
        for _ in range(TURNS):  # so that both meet the same troubles of the machine
            limits.append(pgbench.runs_a_second())
            rate, share = asyncio.run(_ours(server))
            rates.append(rate)
            shares.append(share)
        rival = dbos_rate(server)
    ours, limit = typical_turn(rates, limits)
    return [
        Figure(
            name="postgres: 3-step runs, 200 in flight, against pgbench -c 32",
            unit="runs/s",
            ours=ours,
            limit=limit,
            at_least=0.6,
        ),
        Figure(
            name="postgres: transactions per 3-step run, against 0.5",
            unit="transactions",
            ours=typical(shares),
            limit=0.5,
            at_most=1.0,
        ),
        Figure(
            name="postgres: 3-step runs, against DBOS",
            unit="runs/s",
            ours=typical(rates),
            limit=rival,
            at_least=15,
        ),
    ]


async def _ours(server: Server) -> tuple[float, float]:
    store = await fresh_store(server, "ours")
    async with store, tenure.Runner(store=store) as runner:
        workflow = no_op_workflow()
        await many_runs(runner, workflow, 200)
        settle_down()  # as our own processes do
        before, start = commits(server, "ours"), perf_counter()
        await many_runs(runner, workflow, RUNS)
        spent = perf_counter() - start
    return RUNS / spent, (commits(server, "ours") - before) / RUNS
