"""A run is begun on what was seen of it: the statement that does so checks that this is still so,
and does not wait for whoever is writing it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, LiteralString

import psycopg
import pytest

from tenure.model.errors import LeaseHeld, LeaseLost, StoreUnavailable, TenureError, VersionConflict
from tenure.model.snapshot import RunSnapshot
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create, create_embedded
from tenure.testing.factories import CHATTY, begin_run, start_step
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow

OTHERWISE: dict[str, tuple[LiteralString, type[TenureError]]] = {
    "changed": ("version = version + 1", VersionConflict),
    "claimed and given back": ("fence = fence + 1", LeaseLost),
    "owned": (
        "owner_id = 'worker-2', claim_id = 'claim-2', "
        "lease_expires_at = tenure.clock() + interval '1 hour'",
        LeaseHeld,
    ),
}
"""How a run may stand once a database was restored. Each is found out by itself: it need not come
with another."""


@pytest.fixture
async def store(postgres_database: TestDatabase) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database.url) as store:
        yield store


async def seen(store: PostgresStore, **fields: Any) -> RunSnapshot:
    """It waits, and the store remembers it."""
    await create(store, **fields)
    (found,) = await store.find_waiting(["default"], limit=2)
    return found.snapshot


@pytest.mark.parametrize("callbacks", [(), (CHATTY,)], ids=["quiet", "with callbacks"])
@pytest.mark.parametrize(("change", "refusal"), OTHERWISE.values(), ids=OTHERWISE)
async def test_run_that_is_not_as_it_was_seen_is_not_begun(
    store: PostgresStore,
    postgres_database: TestDatabase,
    change: LiteralString,
    refusal: type[TenureError],
    callbacks: Any,
) -> None:
    run = await seen(store, callbacks=callbacks)
    with psycopg.connect(postgres_database.url) as somebody:
        somebody.execute("update tenure.runs set " + change)
    before = await store.get_run(run.run_id)
    with pytest.raises(refusal):
        await store.begin_run(begin_run(run, "worker-1"))
    assert await store.get_run(run.run_id) == before


async def test_run_that_somebody_holds_is_not_waited_for(
    store: PostgresStore, postgres_database: TestDatabase
) -> None:
    run = await seen(store)
    other = await create_embedded(store, "worker-2")
    beginning = begin_run(run, "worker-1")
    with psycopg.connect(postgres_database.url) as somebody:
        somebody.execute("select 1 from tenure.runs where run_id = %s for update", [run.run_id])
        async with asyncio.timeout(5):  # it tries for a second
            with pytest.raises(StoreUnavailable, match="locked"):
                await store.begin_run(beginning)
        assert (await store.update_run(start_step(other))).version == 2
    assert await store.get_run(run.run_id) == run
    assert (await store.begin_run(beginning)).version == 2
