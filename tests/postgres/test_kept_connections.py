"""Which connections are not kept for the next call, though they could be: they would harm it."""

from __future__ import annotations

import asyncio

import pytest

from tenure.model.errors import StoreUnavailable
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.connections import Purpose
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow


async def _backend(store: PostgresStore, *, any_schema: bool = False) -> int:
    """Who answers, at the other end of the connection that this call has."""
    async with store._connections.session(Purpose.READING, any_schema=any_schema) as session:
        ((pid,),) = await session.built("select pg_backend_pid()", ())
    return int(pid)


async def test_others_are(postgres_database: TestDatabase) -> None:
    async with PostgresStore(postgres_database.url) as store:
        assert await _backend(store) == await _backend(store)


async def test_one_that_was_told_to_stop(postgres_database: TestDatabase) -> None:
    """It may hear of that a moment later, in somebody else's call."""
    async with PostgresStore(f"{postgres_database.url}?statement_timeout=0.5") as store:
        before = await _backend(store)
        with pytest.raises(StoreUnavailable, match=r"took longer than 0\.5 s"):
            async with store._connections.session(Purpose.READING):
                await asyncio.sleep(0.6)  # nothing is asked: there is nothing to stop
        assert await _backend(store) != before


async def test_one_that_was_made_for_any_schema(postgres_database: TestDatabase) -> None:
    """It knows nothing of what others are told when they are made."""
    async with PostgresStore(f"{postgres_database.url}?prepared=yes") as store:
        before = await _backend(store, any_schema=True)
        assert await _backend(store) != before
        async with store._connections.session(Purpose.READING) as session:
            assert await session.built("show plan_cache_mode", ()) == [("force_generic_plan",)]
