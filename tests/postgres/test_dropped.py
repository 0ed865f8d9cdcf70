"""A store that all have forgotten about, though nobody has closed it, lets go of the server."""

from __future__ import annotations

import asyncio
import gc
import os

import pytest

from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.connections import Purpose
from tenure.testing.factories import new_run
from tests.postgres.database import TestDatabase
from tests.postgres.test_connection_count import until_there_are

pytestmark = pytest.mark.slow


@pytest.fixture
def counted(postgres_going: TestDatabase) -> str:
    postgres_going.empty()
    return f"{postgres_going.url}?application_name=counted"


async def test_dropped_store_ends_its_connections_and_says_so(
    counted: str, postgres_going: TestDatabase
) -> None:
    store = PostgresStore(counted)
    await store.create_run(new_run())
    await until_there_are(1, postgres_going)
    del store
    with pytest.warns(ResourceWarning, match="deleted while still open"):
        gc.collect()
    await until_there_are(0, postgres_going)
    async with PostgresStore(counted) as another:  # with the number of that socket
        await another.create_run(new_run())


async def test_closed_store_that_is_dropped_says_nothing(counted: str) -> None:
    store = PostgresStore(counted)
    await store.create_run(new_run())
    await store.close()
    del store
    gc.collect()


def test_store_that_a_forked_process_drops_stays_its_parents(counted: str) -> None:
    with asyncio.Runner() as runner:
        store = PostgresStore(counted)
        runner.run(store.create_run(new_run()))
        (line,) = store._connections._lanes[runner.get_loop()][Purpose.WRITING].idle
        child = os.fork()
        if not child:
            del line, store
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        runner.run(store.create_run(new_run()))
        assert store._connections._lanes[runner.get_loop()][Purpose.WRITING].idle == [line]
        runner.run(store.close())
