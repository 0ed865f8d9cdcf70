"""What somebody has set for all that use a database, or for a role: the store says itself what it
relies on."""

from __future__ import annotations

import asyncio

import pytest

from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create, create_embedded, lease_of, write
from tenure.testing.factories import claim_request, start_step
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

TEXT = "name: shared"
LEVELS = pytest.mark.parametrize("level", ["repeatable read", "serializable"])


@pytest.fixture
def url(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists settings with (force)")
    postgres_server.execute("create database settings")
    return postgres_server.url("settings")


def prescribe(server: Server, setting: str, value: str) -> None:
    """For as long as there is this database."""
    server.execute(f"alter role tenure in database settings set {setting} = {value}")


# How times are written


@pytest.mark.parametrize("prepared", ["yes", "no"])
@pytest.mark.parametrize("style", ["'SQL, DMY'", "'German'", "'Postgres, MDY'"])
async def test_times_are_read_whatever_style_they_are_to_be_told_in(
    postgres_server: Server, url: str, style: str, prepared: str
) -> None:
    prescribe(postgres_server, "datestyle", style)
    async with PostgresStore(f"{url}?prepared={prepared}") as store:
        assert (await store.migrate_store()).problems == ()
        queued = await create(store)
        owned = await create_embedded(store)
        assert (await write(store, start_step(owned))).version == 2
        assert len((await store.list_runs()).items) == 2
        (claimed,) = await store.claim_runs(claim_request("owner-b", limit=3))
        assert claimed.snapshot.run_id == queued.run_id
        renewals = await store.renew_leases([lease_of(owned), claimed.lease], 60.0)
        assert all(renewal.ok for renewal in renewals)
        assert queued.created_at is not None
        assert await store.store_time() >= queued.created_at
        assert (await store.check_store()).problems == ()


# How much a transaction sees of others


@LEVELS
async def test_many_migrate_at_once(postgres_server: Server, url: str, level: str) -> None:
    prescribe(postgres_server, "default_transaction_isolation", f"'{level}'")
    stores = [PostgresStore(url) for _ in range(5)]
    await asyncio.gather(*(store.migrate_store() for store in stores))
    for store in stores:
        await store.close()
