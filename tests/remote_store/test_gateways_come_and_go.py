"""A gateway keeps nothing: it can be restarted under its clients, and any number serve a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tenure.client import HttpStore
from tenure.model.errors import StoreUnavailable, VersionConflict
from tenure.model.status import RunStatus
from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.contracts.acts import claim, create, lease_of, write
from tenure.testing.factories import LONG, claim_request, end_run, start_run, start_step
from tests.postgres.database import TestDatabase
from tests.remote_store.front import gateway

pytestmark = pytest.mark.slow

Connect = Callable[[], Awaitable[Any]]


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """To the same store each time, as another process would."""
    if request.param == "sqlite":
        return lambda: SQLiteStore.open(tmp_path / "runs.db")
    database: TestDatabase = request.getfixturevalue("postgres_going")
    database.empty()

    async def connected() -> PostgresStore:
        return PostgresStore(database.url)

    return connected


async def test_a_restart_in_mid_work_costs_nothing_but_a_repetition(connect: Connect) -> None:
    kept = await connect()
    async with gateway(kept) as address:
        store = HttpStore(address)
        run = await claim(store, (await create(store)).run_id)
        run = await write(store, start_run(run))
    intent = start_step(run)
    with pytest.raises(StoreUnavailable):
        await store.update_run(intent)
    async with gateway(kept, urlsplit(address).port or 0), store:
        assert (await store.update_run(intent)).version == run.version + 1
        (renewal,) = await store.renew_leases([lease_of(run)], LONG)
        assert renewal.ok
        run = await store.get_run(run.run_id)
        ended = await write(store, end_run(run, RunStatus.FAILED))
        assert ended.ended
    await kept.close()


async def test_two_gateways_are_one_store(connect: Connect) -> None:
    """Each with connections of its own to the same file or database."""
    first, second = await connect(), await connect()
    async with (
        gateway(first) as here,
        gateway(second) as there,
        HttpStore(here) as one,
        HttpStore(there) as other,
    ):
        runs = [await create(one) for _ in range(20)]
        claims = await asyncio.gather(
            *(
                store.claim_runs(claim_request(f"worker-{number}", limit=4))
                for number, store in enumerate([one, other] * 5)
            )
        )
        got = [each.lease.run_id for claimed in claims for each in claimed]
        assert sorted(got) == sorted(run.run_id for run in runs)
        claimed = next(each for of_one in claims for each in of_one)
        begun = start_run(claimed.snapshot)
        receipt = await one.update_run(begun)
        assert await other.update_run(begun) == receipt
        with pytest.raises(VersionConflict):
            await other.update_run(start_run(claimed.snapshot))
        assert (await other.get_run(begun.run_id)).version == receipt.version
    await first.close()
    await second.close()
