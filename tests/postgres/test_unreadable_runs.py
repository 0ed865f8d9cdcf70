"""A run whose record nobody can read is its own misfortune: whoever claims others gets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

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


DAMAGES = {
    "plan": "update tenure.run_specs set plan = '[1]' where seq = $seq",
    "step": "insert into tenure.steps (seq, step, body) values ($seq, 0, '[]')",
    "head": "update tenure.runs set counts = '5' where seq = $seq",
}


@pytest.fixture(params=DAMAGES)
async def runs(
    request: pytest.FixtureRequest, store: PostgresStore, postgres_database: TestDatabase
) -> list[RunSnapshot]:
    """The first cannot be read."""
    runs = [await create(store) for _ in range(3)]
    with psycopg.connect(postgres_database.url, autocommit=True) as connection:
        of_the_first = "(select seq from tenure.runs where run_id = %s)"
        damage = DAMAGES[request.param].replace("$seq", of_the_first)
        connection.execute(damage, (runs[0].run_id,))
    return runs


def _ids(runs: Iterable[RunSnapshot]) -> set[str]:
    return {run.run_id for run in runs}


async def test_others_are_claimed(
    store: PostgresStore, runs: list[RunSnapshot], caplog: pytest.LogCaptureFixture
) -> None:
    claimed = await store.claim_runs(claim_request(limit=10))
    assert _ids(each.snapshot for each in claimed) == _ids(runs[1:])
    assert f"run {runs[0].run_id} is left out: a stored record cannot be read" in caplog.text
    assert await store.claim_runs(claim_request("owner-b", limit=10)) == []


async def test_others_are_seen_to_wait(store: PostgresStore, runs: list[RunSnapshot]) -> None:
    found = await store.find_waiting(["default"], limit=10)
    assert _ids(each.snapshot for each in found) == _ids(runs[1:])


async def test_others_are_read_at_the_same_moment(
    store: PostgresStore, runs: list[RunSnapshot]
) -> None:
    asked = (store.get_run(run.run_id) for run in runs)
    refused, *read = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(refused, StoreIncompatible)
    assert read == runs[1:]


async def test_who_asks_for_it_is_told(store: PostgresStore, runs: list[RunSnapshot]) -> None:
    with pytest.raises(StoreIncompatible, match="cannot be read"):
        await store.claim_run(runs[0].run_id, lease_request())
    with pytest.raises(StoreIncompatible, match="cannot be read"):
        await store.get_run(runs[0].run_id)


async def test_others_are_listed(store: PostgresStore, postgres_database: TestDatabase) -> None:
    runs = [await create(store) for _ in range(3)]
    with psycopg.connect(postgres_database.url, autocommit=True) as connection:
        connection.execute(
            "update tenure.runs set counts = '5' where run_id = %s", (runs[0].run_id,)
        )
    assert {run.run_id for run in (await store.list_runs()).items} == _ids(runs[1:])
    assert {run.run_id for run in (await store.list_runnable()).items} == _ids(runs[1:])
