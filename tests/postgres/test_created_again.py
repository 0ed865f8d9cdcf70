"""A run is created again, as its answer was lost, while somebody else is writing it: nobody waits
for that but whoever asked for this run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from tenure.model.errors import RunExists, StoreUnavailable
from tenure.model.update import NewRun, Receipt
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create_embedded
from tenure.testing.factories import HOOK, change_run, embedded_run, new_run
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow

SOON = 10.0
WRITING = "update tenure.runs set fence = fence where run_id = %s"
WAITING = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"


@pytest.fixture(params=["yes", "no"])
async def store(
    postgres_database: TestDatabase, request: pytest.FixtureRequest
) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(f"{postgres_database.url}?prepared={request.param}") as store:
        yield store


def _alone() -> list[NewRun]:
    return [new_run()]


def _among_others() -> list[NewRun]:
    return [new_run() for _ in range(3)]


def _with_callbacks() -> list[NewRun]:
    return [embedded_run(), new_run(callbacks=(HOOK,)), new_run()]


@pytest.mark.parametrize("those", [_alone, _among_others, _with_callbacks])
async def test_it_holds_up_nobody(
    store: PostgresStore, postgres_database: TestDatabase, those: Callable[[], list[NewRun]]
) -> None:
    new = those()
    again = new[0]
    await store.create_run(again)
    owned = await create_embedded(store)
    with psycopg.connect(postgres_database.url) as somebody:
        somebody.execute(WRITING, (again.snapshot.run_id,))
        async with asyncio.timeout(SOON):
            refused, *others = await store.update_runs([*new, change_run(owned, message="on")])
        assert isinstance(refused, StoreUnavailable)
        assert "send it again" in str(refused)
        assert [type(other) for other in others] == [Receipt] * len(new)
        somebody.rollback()
    assert (await store.create_run(again)).version == 1
    with pytest.raises(RunExists):
        await store.create_run(new_run(run_id=again.snapshot.run_id))
