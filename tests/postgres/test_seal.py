"""What announcements are sealed with: who creates runs wants it, and none is refused without it."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any

import psycopg
import pytest

from tenure.model.errors import StoreIncompatible
from tenure.model.query import topic_of_queue
from tenure.model.update import Receipt
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.migrating import migrations, newest_schema
from tenure.testing.contracts.acts import create, create_embedded
from tenure.testing.contracts.events import listening
from tenure.testing.factories import change_run, new_run
from tests.postgres.server import Server
from tests.postgres.test_offered import waiting

pytestmark = pytest.mark.slow

QUEUE = topic_of_queue("default")
RIGHTS = """
do $$ begin if not exists (select from pg_roles where rolname = 'sealing') then
  create role sealing login; end if; end $$;
grant usage on schema tenure to sealing;
grant all on all tables in schema tenure to sealing;
grant usage on all sequences in schema tenure to sealing
"""
NO_SEALING = """
revoke execute on all functions in schema tenure from public;
grant execute on function tenure.clock() to sealing
"""


@pytest.fixture
def url(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists seals with (force)")
    postgres_server.execute("create database seals")
    return postgres_server.url("seals")


def of_another_role(url: str) -> str:
    return url.replace("//tenure@", "//sealing@")


def execute(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(sql)


async def submissions(store: PostgresStore) -> None:
    """Some of which let their hints ride; the first come at once."""
    await asyncio.gather(*(store.create_run(new_run()) for _ in range(4)))
    for _ in range(3):
        await store.create_run(new_run())
        await asyncio.sleep(0.12)
    run, other = await create_embedded(store), new_run()
    for outcome in await store.update_runs([change_run(run, message="on"), other]):
        assert isinstance(outcome, Receipt)


async def test_who_could_create_runs_before_there_was_one_still_can(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tuple(each for each in migrations() if each[0] <= 5)
    with monkeypatch.context() as before:
        before.setattr("tenure.stores.postgres.migrating.migrations", lambda: older)
        async with PostgresStore(url) as store:
            assert (await store.migrate_store()).schema == 5
    execute(url, RIGHTS)
    async with PostgresStore(url) as store:
        assert (await store.migrate_store()).schema == newest_schema()
    async with PostgresStore(of_another_role(url)) as store:
        assert (await store.check_store()).problems == ()
        await submissions(store)


@pytest.mark.parametrize(
    ("lost", "problem"),
    [
        ("revoke all on tenure.seal from sealing", "grant select on tenure.seal"),
        (NO_SEALING, "may not execute tenure.sealed(text)"),
        ("delete from tenure.seal", "tenure store migrate"),
    ],
    ids=["no right to read", "no right to seal", "no row"],
)
@pytest.mark.parametrize("prepared", ["yes", "no"])
async def test_without_it_runs_are_created_and_hints_are_heard(
    url: str, lost: str, problem: str, prepared: str, caplog: Any
) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
    execute(url, RIGHTS)
    execute(url, lost)
    async with PostgresStore(f"{of_another_role(url)}?prepared={prepared}") as store:
        assert problem in " ".join((await store.check_store()).problems)
        await submissions(store)
        with caplog.at_level(logging.WARNING):
            async with listening(store, QUEUE) as heard, PostgresStore(url) as other:
                heard.clear()
                await create(other)
                await heard.wait()
        assert caplog.text.count("begin a moment later") == 1


async def test_role_that_may_not_ask_for_the_time_is_told_so(url: str) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
    execute(url, RIGHTS)
    execute(url, "revoke execute on all functions in schema tenure from public")
    async with PostgresStore(of_another_role(url)) as store:
        (problem,) = (await store.check_store()).problems
        assert "may not execute tenure.clock(), tenure.sealed(text)" in problem
        assert "grant execute on all functions in schema tenure" in problem
        with pytest.raises(StoreIncompatible, match="clock"):
            await store.create_run(new_run())
        execute(url, "grant execute on all functions in schema tenure to sealing")
        assert (await store.check_store()).problems == ()
        await submissions(store)


async def test_role_that_is_given_the_right_seals_after_a_while(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
    execute(url, RIGHTS)
    execute(url, NO_SEALING)
    async with waiting(url) as who, PostgresStore(of_another_role(url)) as store:
        await create(store, queue="another-one")
        execute(url, "grant execute on all functions in schema tenure to sealing")
        later = monotonic() + 61.0
        monkeypatch.setattr("tenure.stores.postgres.writing.monotonic", lambda: later)
        await asyncio.sleep(0.12)
        run = await create(store)
        await who.hears()
        offered = who.store.offered_run(["default"])
        assert offered is not None
        assert offered.snapshot.run_id == run.run_id


async def test_lost_one_is_made_anew(url: str) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
        execute(url, "delete from tenure.seal")
        await store.migrate_store()
        assert (await store.check_store()).problems == ()
    with pytest.raises(psycopg.errors.UniqueViolation):
        execute(url, "insert into tenure.seal (secret) values ('another')")
