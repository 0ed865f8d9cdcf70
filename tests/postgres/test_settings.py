"""What somebody has set for all that use a database, or for a role: the store says itself what it
relies on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tenure.model.errors import StoreIncompatible
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.connections import Purpose
from tenure.stores.postgres.session import Session
from tenure.testing.contracts.acts import create, create_embedded, lease_of, write
from tenure.testing.contracts.retention import ended
from tenure.testing.factories import claim_request, start_step
from tests.postgres.pooler import Pooler
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

TEXT = "name: shared"
LEVELS = pytest.mark.parametrize("level", ["repeatable read", "serializable"])


@pytest.fixture
def url(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists settings with (force)")
    postgres_server.execute("create database settings")
    return postgres_server.url("settings")


@pytest.fixture
def pooler(postgres_server: Server) -> Iterator[Pooler]:
    """Of this database: its connections end with it."""
    with Pooler(postgres_server.port) as pooler:
        yield pooler


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


async def test_times_that_cannot_be_read_are_said_to_be(url: str) -> None:
    """As behind a pooler that keeps no setting."""
    async with PostgresStore(url) as store:
        await store.migrate_store()
        with pytest.raises(StoreIncompatible, match="set datestyle = 'ISO'"):
            await _ask_in_german(store)


async def _ask_in_german(store: PostgresStore) -> None:
    async with store._connections.session(Purpose.READING) as session:
        await session.built("set datestyle = 'German'", ())
        await session.all("clock")


# How much a transaction sees of others


@LEVELS
@pytest.mark.parametrize("pooled", [False, True])
async def test_prune_sees_a_run_that_is_created_with_the_text_at_this_moment(
    postgres_server: Server,
    pooler: Pooler,
    url: str,
    level: str,
    pooled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prescribe(postgres_server, "default_transaction_isolation", f"'{level}'")
    if pooled:
        url = postgres_server.url("settings", pooler.port)
    created: list[str] = []
    count = Session.count

    async def create_before(session: Session, name: str, *values: object) -> int:
        if not created:
            created.append((await create(other, definition=TEXT)).run_id)
        return await count(session, name, *values)

    async with PostgresStore(url) as store, PostgresStore(url) as other:
        await store.migrate_store()
        await ended(store, definition=TEXT)
        monkeypatch.setattr(Session, "count", create_before)
        assert await store.prune_runs(0.0) == 1
        assert await other.get_definition(created[0]) == TEXT
        assert (await store.check_store()).problems == ()


@LEVELS
async def test_many_migrate_at_once(postgres_server: Server, url: str, level: str) -> None:
    prescribe(postgres_server, "default_transaction_isolation", f"'{level}'")
    stores = [PostgresStore(url) for _ in range(5)]
    await asyncio.gather(*(store.migrate_store() for store in stores))
    for store in stores:
        await store.close()


_LEVEL = "select current_setting('transaction_isolation')"


@LEVELS
async def test_lone_statements_see_what_is_committed_on_connections_of_our_own_only(
    postgres_server: Server, pooler: Pooler, url: str, level: str
) -> None:
    """A pooler would hand what was set for one client to the next, who never asked for it."""
    prescribe(postgres_server, "default_transaction_isolation", f"'{level}'")
    through = postgres_server.url("settings", pooler.port)
    async with PostgresStore(url) as store, PostgresStore(through) as pooled:
        await store.migrate_store()
        for each, wanted in ((store, "read committed"), (pooled, level)):
            for _ in range(20):
                async with each._connections.session(Purpose.READING) as session:
                    assert await session.built(_LEVEL, ()) == [(wanted,)]
