"""``check`` finds what a database edited by hand lacks."""

from __future__ import annotations

import psycopg
import pytest

from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create_embedded, write
from tenure.testing.factories import finish_step, start_step
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("delete from tenure.run_specs", "runs that lack what they were given: 1"),
        ("delete from tenure.definitions", "runs whose workflow text is gone: 1"),
        ("delete from tenure.runs", "runs of which only parts are left: 1"),
        *[
            (f"delete from tenure.journal where version = {version}", "not in the journal: 1")
            for version in (1, 2, 3)
        ],
        ("update tenure.journal set version = 9 where version = 3", "not in the journal: 1"),
    ],
)
async def test_damage_is_found(postgres_database: TestDatabase, damage: str, found: str) -> None:
    async with PostgresStore(postgres_database.url) as store:
        run = await write(store, start_step(await create_embedded(store, definition="text")))
        await write(store, finish_step(run))
        assert (await store.check_store()).problems == ()
        with psycopg.connect(postgres_database.url, autocommit=True) as connection:
            connection.execute(damage)
        problems = " ".join((await store.check_store()).problems)
        assert found in problems
