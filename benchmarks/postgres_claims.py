"""Queued one-step runs on PostgreSQL: ``claim_runs(100)`` and a final ``update_runs``, against bare
SKIP LOCKED batches of 10 on 8 connections that claim and complete as many rows. They take turns, so
that whatever else this machine does falls on both."""

from __future__ import annotations

import asyncio
from time import perf_counter

import psycopg
from tests.postgres.server import Server

from benchmarks.figures import Figure, typical_turn
from benchmarks.postgres_server import durable_server, fresh_store
from benchmarks.workload import three_steps
from tenure.model.compose import effect_of, new_run
from tenure.model.leases import ClaimedRun, ClaimRequest
from tenure.model.status import RunStatus
from tenure.model.update import Changes, RunChange, Update
from tenure.stores.postgres import PostgresStore

RUNS = 4000
TURNS = 5
CLAIMERS = 2
BARE_CLAIMERS = 8
TABLE = """
create table jobs (id bigserial primary key, state text not null, body text not null);
create index on jobs (id) where state = 'queued'
"""
CLAIM = """
update jobs set state = 'running' where id = any(array(
  select id from jobs where state = 'queued' order by id limit 10 for update skip locked))
returning id
"""
COMPLETE = "update jobs set state = 'success' where id = any(%s)"


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(TURNS):
        bare.append(await _bare(server))
        ours.append(await _ours(server))
    claimed, limit = typical_turn(ours, bare)
    return [
        Figure(
            name="postgres claim_runs of 100 and their ends, against SKIP LOCKED of 10",
            unit="runs/s",
            ours=claimed,
            limit=limit,
            at_least=0.25,
        )
    ]


async def _ours(server: Server) -> float:
    store = await fresh_store(server, "claimed")
    ids = iter(f"id-{number}" for number in range(10 * RUNS))
    new = [new_run(three_steps(f"queued-{n:06}", ("web1",)), next(ids), ids) for n in range(RUNS)]
    for start in range(0, RUNS, 500):
        await store.update_runs(new[start : start + 500])
    async with store:
        start_time = perf_counter()
        await asyncio.gather(*(_work(store, f"worker-{i}") for i in range(CLAIMERS)))
        return RUNS / (perf_counter() - start_time)


async def _work(store: PostgresStore, owner_id: str) -> None:
    number = 0
    while True:
        number += 1
        claim_id = f"{owner_id}-{number}"
        claimed = await store.claim_runs(
            ClaimRequest(owner_id=owner_id, seconds=60, claim_id=claim_id, limit=100)
        )
        if not claimed:
            return
        await store.update_runs([_end(one) for one in claimed])


def _end(claimed: ClaimedRun) -> Update:
    run = claimed.snapshot
    changes = Changes(run=RunChange(status=RunStatus.FAILED, message="nothing to do"))
    return Update(
        run_id=run.run_id,
        update_id=f"end-{run.run_id}",
        base_version=run.version,
        lease=claimed.lease.fencing,
        effect=effect_of(run, changes, iter(())),
        release=True,
    )


async def _bare(server: Server) -> float:
    server.execute("drop database if exists jobs with (force)")
    server.execute("create database jobs")
    server.execute(TABLE, "jobs")
    server.execute(
        "insert into jobs (state, body) select 'queued', repeat('x', 500) "
        f"from generate_series(1, {RUNS * 2})",
        "jobs",
    )
    start = perf_counter()
    await asyncio.gather(*(_bare_work(server.url("jobs")) for _ in range(BARE_CLAIMERS)))
    return RUNS * 2 / (perf_counter() - start)


async def _bare_work(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, prepare_threshold=0
    ) as connection:
        while found := await (await connection.execute(CLAIM)).fetchall():
            await connection.execute(COMPLETE, ([number for (number,) in found],))
