"""A run whose record nobody can read is its own misfortune: whoever claims others gets them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from tenure.model.errors import StoreIncompatible
from tenure.model.snapshot import RunSnapshot
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create
from tenure.testing.factories import claim_request, lease_request
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow


@pytest.fixture
async def store(postgres_database: TestDatabase) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database.url) as store:
        yield store


@pytest.fixture
async def runs(store: PostgresStore, postgres_database: TestDatabase) -> list[RunSnapshot]:
    """The first cannot be read."""
    runs = [await create(store) for _ in range(3)]
    with psycopg.connect(postgres_database.url, autocommit=True) as connection:
        connection.execute(
            "update tenure.run_specs set plan = '[1]' "
            "where seq = (select seq from tenure.runs where run_id = %s)",
            (runs[0].run_id,),
        )
    return runs


async def test_others_are_claimed(
    store: PostgresStore, runs: list[RunSnapshot], caplog: pytest.LogCaptureFixture
) -> None:
    claimed = await store.claim_runs(claim_request(limit=10))
    assert {each.snapshot.run_id for each in claimed} == {run.run_id for run in runs[1:]}
    assert f"run {runs[0].run_id} is left alone" in caplog.text
    assert await store.claim_runs(claim_request("owner-b", limit=10)) == []


async def test_others_are_seen_to_wait(store: PostgresStore, runs: list[RunSnapshot]) -> None:
    found = await store.find_waiting(["default"], limit=10)
    assert {each.snapshot.run_id for each in found} == {run.run_id for run in runs[1:]}


async def test_who_asks_for_it_is_told(store: PostgresStore, runs: list[RunSnapshot]) -> None:
    with pytest.raises(StoreIncompatible, match="cannot be read"):
        await store.claim_run(runs[0].run_id, lease_request())
    with pytest.raises(StoreIncompatible, match="cannot be read"):
        await store.get_run(runs[0].run_id)
