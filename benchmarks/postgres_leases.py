"""10,000 leases held by one process on PostgreSQL: how long renewing all of them takes, against a
tenth of their time; and in how many transactions."""

from __future__ import annotations

import asyncio
from itertools import count
from time import perf_counter

from tests.postgres.server import Server

from benchmarks.figures import Figure
from benchmarks.postgres_server import commits, durable_server, fresh_store
from benchmarks.workload import OWNER, created, three_steps
from tenure.model.errors import TenureError
from tenure.model.leasing import Lease
from tenure.stores.postgres import PostgresStore

HELD = 10_000
SECONDS = 60.0
ROUNDS = 3


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    store = await fresh_store(server, "leases")
    async with store:
        leases = await _held(store)
        before, spent = commits(server, "leases"), []
        for _ in range(ROUNDS):
            start = perf_counter()
            await store.renew_leases(leases, SECONDS)
            spent.append(perf_counter() - start)
    transactions = (commits(server, "leases") - before) / ROUNDS
    return [
        Figure(
            name="postgres: renewing 10,000 leases, against a tenth of 60 s",
            unit="s",
            ours=max(spent),
            limit=SECONDS / 10,
            at_most=1,
        ),
        Figure(
            name="postgres: transactions for 10,000 renewals, against 10",
            unit="transactions",
            ours=transactions,
            limit=10,
            at_most=1,
        ),
    ]


async def _held(store: PostgresStore) -> list[Lease]:
    leases: list[Lease] = []
    numbers = count()
    while len(leases) < HELD:
        runs = [three_steps(f"held-{next(numbers):06}", ("web1",)) for _ in range(500)]
        for run, outcome in zip(
            runs, await store.update_runs([created(run) for run in runs]), strict=True
        ):
            if isinstance(outcome, TenureError):
                raise outcome
            assert outcome.lease_expires_at is not None
            leases.append(
                Lease(
                    run_id=run.run_id,
                    owner_id=OWNER,
                    fence=1,
                    expires_at=outcome.lease_expires_at,
                )
            )
    return leases
