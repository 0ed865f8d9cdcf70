"""10,000 leases held by one process on PostgreSQL: how long its keeper needs to renew all of them,
against a tenth of their time; and in how many transactions, looks for what operators want
included."""

from __future__ import annotations

import asyncio
from itertools import count

from tests.postgres.server import Server

from benchmarks.figures import Figure
from benchmarks.postgres_server import commits, durable_server, fresh_store
from benchmarks.workload import OWNER, created, three_steps
from tenure.model.errors import TenureError
from tenure.model.leases import Lease
from tenure.runtime.group_commit import InTouch, StoreContact
from tenure.runtime.lease_timing import Timing
from tenure.runtime.leases import HeldLease, LeaseRenewer
from tenure.stores.postgres import PostgresStore

HELD = 10_000
SECONDS = 60.0
EVERY = 2.0
ROUNDS = 3


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    store = await fresh_store(server, "leases")
    timing = Timing(lease_duration=SECONDS, renew_interval=EVERY)
    keeper = LeaseRenewer(store, OWNER, timing, InTouch(StoreContact(EVERY)))
    async with store:
        leases = await _held(store)
        sent_at = asyncio.get_running_loop().time()
        held = [keeper.hold(each.run_id, each, sent_at, _canceled, _lost) for each in leases]
        await _renewed(held)
        before = commits(server, "leases")
        spent = [await _renewed(held) for _ in range(ROUNDS)]
        transactions = (commits(server, "leases") - before) / ROUNDS
        for each in held:
            keeper.drop(each)
        await keeper.close()
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


async def _renewed(held: list[HeldLease]) -> float:
    """Waits until all have been, once more; the seconds from when that was sent until the process
    trusts the last of them for longer."""
    time = asyncio.get_running_loop().time
    before = max(each.renewed_at for each in held)
    while True:
        await asyncio.sleep(0.01)
        first = min(each.renewed_at for each in held)
        if first > before:
            return time() - first


def _canceled() -> None:
    raise RuntimeError("nobody asked for it")


def _lost(why: str) -> None:
    raise RuntimeError(why)


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
