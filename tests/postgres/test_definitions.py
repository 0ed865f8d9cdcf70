"""A definition goes along once with a batch, however many of its runs have it."""

from __future__ import annotations

import psycopg
import pytest

from tenure.model.errors import RunExists
from tenure.stores.postgres import PostgresStore
from tenure.testing.factories import new_run
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow


async def test_definition_is_there_if_the_first_run_that_brought_it_is_refused(
    postgres_database: TestDatabase,
) -> None:
    async with PostgresStore(postgres_database.url) as store:
        await store.create_run(new_run(run_id="taken-0001"))
        refused, *written = await store.update_runs(
            [
                new_run(run_id="taken-0001", definition="name: web"),
                new_run(run_id="web-00001", definition="name: web"),
                new_run(run_id="db-000001", definition="name: db"),
                new_run(run_id="web-00002", definition="name: web"),
            ]
        )
        assert isinstance(refused, RunExists)
        assert not [outcome for outcome in written if isinstance(outcome, Exception)]
        runs = ("taken-0001", "web-00001", "db-000001", "web-00002")
        found = [await store.get_definition(run_id) for run_id in runs]
    assert found == [None, "name: web", "name: db", "name: web"]


async def test_definition_of_a_refused_run_is_not_kept(postgres_database: TestDatabase) -> None:
    async with PostgresStore(postgres_database.url) as store:
        await store.create_run(new_run(run_id="taken-0001"))
        with pytest.raises(RunExists):
            await store.create_run(new_run(run_id="taken-0001", definition="name: web"))
    with psycopg.connect(postgres_database.url) as connection:
        assert connection.execute("select count(*) from tenure.definitions").fetchone() == (0,)
