"""A store that is no store yet, too old or too new is refused with words that help."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

import tenure
from tenure.model.errors import StoreIncompatible
from tenure.ports.store import LogKey
from tenure.stores.postgres import PostgresStore, pools
from tenure.stores.postgres.pools import Purpose
from tenure.stores.postgres.schema import SchemaState, look, migrations, newest_schema
from tenure.testing.contracts.acts import create, create_embedded, lease_of
from tenure.testing.contracts.events import Reader
from tenure.testing.factories import new_run
from tests.docs.fences import FENCE, ROOT
from tests.postgres.server import Server
from tests.runtime.puppets import PATIENCE, Puppet, step, workflow
from tests.worker.conftest import NEXT, SHORT

pytestmark = pytest.mark.slow

KEY = LogKey(step=0, host="local", stream="stdout")


@pytest.fixture
def url(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists schemas with (force)")
    postgres_server.execute("create database schemas")
    return postgres_server.url("schemas")


async def test_empty_database_is_refused_until_it_is_migrated(url: str) -> None:
    async with PostgresStore(url) as store:
        with pytest.raises(StoreIncompatible, match="tenure store migrate"):
            await store.create_run(new_run())
        assert (await store.check_store()).schema == 0
        report = await store.migrate_store()
        assert (report.schema, report.problems, report.runs) == (newest_schema(), (), 0)
        await store.create_run(new_run())


@pytest.fixture
def plain_role(url: str, postgres_server: Server) -> str:
    """The store's URL for a role that may create nothing in its database."""
    postgres_server.execute(
        "do $$ begin if not exists (select from pg_roles where rolname = 'plain') then "
        "create role plain login; end if; end $$"
    )
    return url.replace("//tenure@", "//plain@")


async def test_grants_on_the_page_admit_that_role_and_no_other(
    url: str, plain_role: str, postgres_server: Server
) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
    with psycopg.connect(plain_role):
        pass  # as any role may in a new database
    page = (ROOT / "docs/operations/postgresql.md").read_text()
    statements = next(
        each["body"] for each in FENCE.finditer(page) if "grant usage" in each["body"]
    )
    postgres_server.execute("drop role if exists worker; create role worker login")
    postgres_server.execute(statements.replace("database tenure", "database schemas"), "schemas")
    denied = pytest.raises(psycopg.OperationalError, match="permission denied for database")
    with denied, psycopg.connect(plain_role):
        pass
    async with PostgresStore(url.replace("//tenure@", "//worker@")) as store:
        await store.create_run(new_run())


async def test_schema_that_somebody_made_for_the_role_is_filled_by_it(
    plain_role: str, postgres_server: Server
) -> None:
    """To make one takes a right on the whole database, which not everybody gives away."""
    postgres_server.execute("create schema tenure authorization plain", "schemas")
    async with PostgresStore(plain_role) as store:
        for _ in range(2):
            assert (await store.migrate_store()).schema == newest_schema()
        assert (await store.check_store()).problems == ()
        await store.create_run(new_run())


async def test_newer_schema_is_refused_by_all_but_the_check(url: str) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
    _set_schema(url, newest_schema() + 1)
    async with PostgresStore(url) as store:
        with pytest.raises(StoreIncompatible, match="upgrade Tenure on this machine"):
            await store.list_runs()
        with pytest.raises(StoreIncompatible, match="upgrade Tenure on this machine"):
            await store.migrate_store()
        (problem,) = (await store.check_store()).problems
        assert "upgrade Tenure" in problem


async def test_older_schema_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
    later = "tenure.stores.postgres.schema.newest_schema"
    monkeypatch.setattr(later, lambda present=newest_schema(): present + 1)
    async with PostgresStore(url) as store:
        with pytest.raises(StoreIncompatible, match="run `tenure store migrate`"):
            await store.list_runs()


async def test_store_of_schema_4_goes_on_with_all_it_has(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tuple(each for each in migrations() if each[0] <= 4)
    with monkeypatch.context() as before:
        before.setattr("tenure.stores.postgres.schema.migrations", lambda: older)
        async with PostgresStore(url) as store:
            assert (await store.migrate_store()).schema == 4
            new = [new_run() for _ in range(3)]  # together: a lone one is written in a newer way
            await store.update_runs(new)
            runs = [await store.get_run(each.snapshot.run_id) for each in new]
            feed = Reader(store)
            await feed.until({run.run_id: await store.read_events(run.run_id) for run in runs[:1]})
    async with PostgresStore(url) as store:
        assert (await store.migrate_store()).schema == newest_schema()
        assert (await store.check_store()).problems == ()
        feed = Reader(store)
        runs.append(await create(store))
        await feed.until({run.run_id: await store.read_events(run.run_id) for run in runs})


async def test_statements_are_prepared_only_if_that_is_allowed(
    url: str, postgres_server: Server
) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
    for setting, some in (("no", False), ("yes", True)):
        async with PostgresStore(f"{url}?prepared={setting}&connections=1") as store:
            run = new_run()
            await store.create_run(run)
            for _ in range(12):
                await store.get_run(run.snapshot.run_id)
            async with store._connections.session(Purpose.READING) as session:
                found = await session.connection.execute(
                    "select 1 from pg_prepared_statements", prepare=False
                )
                assert bool(await found.fetchall()) == some


def _set_schema(url: str, number: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("insert into tenure.migrations (number) values (%s)", (number,))


def _set_schema_back(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("delete from tenure.migrations where number > %s", (newest_schema(),))


class Looks:
    """How often a process looked at the schema, on a clock in the hands of a test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.count = 0
        patch.setattr(pools, "monotonic", lambda: self.now)
        patch.setattr(pools, "look", self._look)

    async def _look(self, *given: Any) -> SchemaState:
        self.count += 1
        return await look(*given)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


async def test_schema_that_became_too_new_is_noticed_by_whoever_is_at_work(
    url: str, looks: Looks
) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
        run = await create_embedded(store)
        fencing = lease_of(run).fencing
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.create_run(new_run()),
            lambda: store.get_run(run.run_id),
            lambda: store.renew_leases([lease_of(run)], 60.0),
            lambda: store.append(run.run_id, fencing, KEY, 0, b"x"),
        ]
        for call in calls:
            await call()
        _set_schema(url, newest_schema() + 1)
        looks.now += pools.LOOK_EVERY_S + 0.1
        for _ in range(2):
            for call in calls:
                with pytest.raises(StoreIncompatible, match="upgrade Tenure on this machine"):
                    await call()
        _set_schema_back(url)
        for call in calls:
            await call()


async def test_a_worker_ends_for_it_and_its_run_goes_on_with_one_that_fits(
    url: str, looks: Looks
) -> None:
    act = Puppet()
    act.hold("one/local")
    pace = tenure.Pace(poll_interval=0.05)
    async with PostgresStore(url) as store:
        await store.migrate_store()
    async with tenure.Runner(url, actions={"act": act}) as runner:
        run = await runner.submit(workflow(step("one")))
        first = tenure.Worker(url, actions={"act": act}, pace=pace, timing=SHORT)
        working = asyncio.create_task(first.run())
        await act.begins("one/local")
        _set_schema(url, newest_schema() + 1)
        looks.now += pools.LOOK_EVERY_S + 0.1
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreIncompatible, match="upgrade Tenure on this machine"):
                await working
        assert act.cancelled == ["one/local"]
        _set_schema_back(url)
        second = tenure.Worker(url, actions={"act": act}, pace=pace, timing=NEXT)
        working = asyncio.create_task(second.run())
        await act.begins("one/local#2")
        second.drain()
        async with asyncio.timeout(PATIENCE):
            await working
        assert (await runner.get_run(run.run_id)).status == "success"
