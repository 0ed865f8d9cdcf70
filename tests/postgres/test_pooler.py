"""The store behind a pooler in transaction mode; the contracts go through it in ``contracts``."""

from __future__ import annotations

import json

import psycopg
import pytest

from tenure.model.errors import StoreIncompatible, StoreUnavailable
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.pools import Purpose
from tenure.testing.contracts.acts import create_embedded
from tenure.testing.factories import new_run, start_step
from tests.postgres.database import TestDatabase
from tests.postgres.pooler import Pooler
from tests.postgres.server import Server
from tests.postgres.test_commands import tenure

pytestmark = pytest.mark.slow


def test_pooler_keeps_nothing_for_its_clients(
    postgres_database: TestDatabase, postgres_pooler: Pooler
) -> None:
    """Else whatever goes through it has shown nothing."""
    url = postgres_database.url_through(postgres_pooler.port)
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as client:
        servers = {_one(client, "select pg_backend_pid()") for _ in range(40)}
        zones = {_one(client, "show time zone") for _ in range(40)}
        assert len(servers) > 1
        assert len(zones) > 1
        with client.transaction():
            assert len({_one(client, "select pg_backend_pid()") for _ in range(20)}) == 1
    with (
        psycopg.connect(url, autocommit=True, prepare_threshold=0) as client,
        pytest.raises(psycopg.errors.InvalidSqlStatementName),
    ):
        [_one(client, "select 1") for _ in range(40)]


async def test_many_clients_share_few_connections(
    postgres_database: TestDatabase, postgres_pooler: Pooler
) -> None:
    url = postgres_database.url_through(postgres_pooler.port)
    stores = [PostgresStore(url) for _ in range(6)]
    handed_over = postgres_pooler.handed_over
    for store in stores:
        run = await create_embedded(store)
        assert (await store.update_run(start_step(run))).version == 2
        assert (await store.get_run(run.run_id)).version == 2
    for store in stores:
        await store.close()
    assert postgres_pooler.handed_over - handed_over > len(stores) * 3


async def test_slow_call_is_stopped_through_the_pooler(
    postgres_database: TestDatabase, postgres_pooler: Pooler
) -> None:
    url = postgres_database.url_through(postgres_pooler.port)
    async with PostgresStore(f"{url}?statement_timeout=0.3") as store:
        await create_embedded(store)
        with psycopg.connect(postgres_database.url) as somebody:
            somebody.execute("lock table tenure.runs in access exclusive mode")
            with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.3 s"):
                await store.create_run(new_run())
            assert _one(somebody, _WAITING) == "0"
        await store.create_run(new_run())


def test_doctor_says_that_hints_do_not_come_through_the_pooler(
    postgres_database: TestDatabase, postgres_pooler: Pooler
) -> None:
    through = postgres_database.url_through(postgres_pooler.port)
    for url, findings in (
        (postgres_database.url, 0),
        (through, 1),
        (f"{through}?wakeups=no", 0),
    ):
        said = json.loads(tenure("doctor", "--store", url, "--json").stdout)["findings"]
        told = [each for each in said if "Add wakeups=no to the store URL" in each]
        assert len(told) == findings, said


_PLANNING = (
    "select concat_ws(' ', current_setting('plan_cache_mode'), current_setting('jit'), "
    "current_setting('enable_seqscan'))"
)


async def test_prepared_statements_are_planned_as_the_store_wants_on_its_own_connections_only(
    postgres_database: TestDatabase, postgres_pooler: Pooler
) -> None:
    """A pooler would hand what was set for one client to the next, who never asked for it."""
    through = postgres_database.url_through(postgres_pooler.port)
    for url, wanted in (
        (postgres_database.url, {"force_generic_plan off off"}),
        (through, {"auto on on"}),
    ):
        async with PostgresStore(f"{url}?prepared=yes&connections=1") as store:
            await store.check_ready()
            async with store._connections.session(Purpose.READING) as session:
                ask = session.connection.execute
                found = [await ask(_PLANNING, prepare=False) for _ in range(40)]
            assert {str(text) for each in found for (text,) in await each.fetchall()} == wanted


async def test_who_prepares_what_another_has_prepared_is_told_not_to(
    postgres_server: Server, postgres_database: TestDatabase
) -> None:
    with Pooler(postgres_server.port, size=1) as pooler:
        url = f"{postgres_database.url_through(pooler.port)}?prepared=yes&wakeups=no"
        async with PostgresStore(url) as store, PostgresStore(url) as other:
            await store.create_run(new_run())
            with pytest.raises(StoreIncompatible, match=r"prepared=no in the store URL"):
                await other.create_run(new_run())


_WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"


def _one(connection: psycopg.Connection, sql: str) -> str:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return str(row[0])
