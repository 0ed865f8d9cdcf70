"""The feed of all runs where commits overtake each other, made to do so."""

from __future__ import annotations

import psycopg
import pytest

from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.pools import Purpose
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.events import Reader
from tenure.testing.factories import begin_run, change_run, fencing_of, start_step
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow


async def test_commit_that_is_overtaken_is_not_skipped(postgres_database: TestDatabase) -> None:
    async with PostgresStore(postgres_database.url) as store:
        slow, quick = await create(store), await create(store)
        feed = Reader(store)
        await feed.until({quick.run_id: await store.read_events(quick.run_id)})
        with psycopg.connect(postgres_database.url) as somebody:
            somebody.execute(
                "insert into tenure.journal (seq, version, at, fence, update_id, events) "
                "select seq, 2, updated_at, 0, 'slow', '[{\"type\": \"run.note\"}]' "
                "from tenure.runs where run_id = %s",
                (slow.run_id,),
            )
            overtaking = await create(store)
            for _ in range(3):
                await feed.read()
            assert overtaking.run_id not in {event.run_id for event in feed.events}
            somebody.commit()
        await feed.until(
            {run_id: await store.read_events(run_id) for run_id in (slow.run_id, overtaking.run_id)}
        )


async def test_versions_of_a_run_keep_their_order_whichever_transaction_began_first(
    postgres_database: TestDatabase,
) -> None:
    async with PostgresStore(postgres_database.url) as store:
        run = await create_embedded(store)
        async with store._connections.session(Purpose.WRITING) as early:
            await early.all("begin")
            await early.connection.execute("select pg_current_xact_id()")
            run = await write(store, start_step(run))
            await store._release(early, run.run_id, fencing_of(run), "release-1")
        feed = Reader(store)
        await feed.until({run.run_id: await store.read_events(run.run_id)})
        versions = [event.version for event in feed.events]
        assert versions == sorted(versions)
        assert versions[-1] == 3


async def test_beginning_comes_after_the_creation_whichever_transaction_began_first(
    postgres_database: TestDatabase,
) -> None:
    async with PostgresStore(postgres_database.url) as store:
        async with store._connections.session(Purpose.WRITING) as early:
            await early.all("begin")
            await early.connection.execute("select pg_current_xact_id()")
            run = await create(store)
            await store._begin(early, begin_run(run))
            await early.all("commit")
        feed = Reader(store)
        await feed.until({run.run_id: await store.read_events(run.run_id)})
        versions = [event.version for event in feed.events]
        assert versions == sorted(versions)
        assert versions[-1] == 2


async def test_restored_dump_of_a_busier_server_joins_the_feed_when_migrated(
    postgres_database: TestDatabase,
) -> None:
    async with PostgresStore(postgres_database.url) as store:
        run = await create_embedded(store)
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            for table in ("runs", "journal"):
                somebody.execute(f"update tenure.{table} set changed_in = '900000000000'")
        (problem,) = (await store.check_store()).problems
        assert "tenure store migrate" in problem
        await store.migrate_store()
        assert (await store.check_store()).problems == ()
        await write(store, change_run(run, message="goes on"))
        feed = Reader(store)
        await feed.until({run.run_id: await store.read_events(run.run_id)})
