"""Whole runs on PostgreSQL (fsync, synchronous_commit): ours, every status durable, against
pgbench with 32 clients that commits the five events of such a run one by one, and against DBOS."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from time import perf_counter

from tests.postgres.server import Server, programs

import tenure
from benchmarks.figures import Figure, typical, typical_turn
from benchmarks.postgres_server import commits, durable_server, fresh_store
from benchmarks.rivals import dbos_rate
from benchmarks.runs import many_runs, no_op_workflow
from tenure.system import settle_down

RUNS = 3000
EVENTS = 5
SECONDS = 4
TURNS = 5
EVENT = '[{"type":"host.success","status":"success","step":"step-1","step_index":1,"host":"local"}]'
TABLE = "create table events (id bigserial primary key, run text, at timestamptz, body text)"
SCRIPT = f"insert into events (run, at, body) values ('run', clock_timestamp(), '{EVENT}');\n"


def measure() -> list[Figure]:
    limits: list[float] = []
    rates: list[float] = []
    shares: list[float] = []
    with durable_server() as server:
        server.execute("create database bare")
        server.execute(TABLE, "bare")
        for _ in range(TURNS):  # so that both meet the same troubles of the machine
            limits.append(_pgbench(server))
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


def _pgbench(server: Server) -> float:
    """Runs a second, if each of its events is a commit."""
    script = Path(server.folder, "event.sql")
    script.write_text(SCRIPT)
    script.chmod(0o644)
    done = subprocess.run(
        [
            str(programs() / "pgbench"), "-h", "127.0.0.1", "-p", str(server.port), "-U", "tenure",
            "-n", "-M", "prepared", "-c", "32", "-j", "2", "-T", str(SECONDS), "-f", str(script),
            "bare",
        ],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert rate is not None, done.stdout
    return float(rate[1]) / EVENTS
