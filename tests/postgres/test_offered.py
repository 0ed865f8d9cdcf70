"""A run that is submitted alone comes to who waits for it with its announcement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tenure.model.errors import RunExists, VersionConflict
from tenure.model.leases import WaitingRun
from tenure.model.query import topic_of_queue
from tenure.model.snapshot import Approval
from tenure.model.status import Recovery, RunStatus
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.listening import seal_of
from tenure.stores.postgres.statements import SQL
from tenure.testing.contracts.acts import create
from tenure.testing.contracts.events import listening
from tenure.testing.factories import annotate, begin_run, new_run
from tests.postgres.database import TestDatabase
from tests.postgres.test_wakeups import LISTENERS

pytestmark = pytest.mark.slow

QUEUE = topic_of_queue("default")
LOOKED_BACK = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with all it can be given": {
        "vars": {"release": "1.4 ✓", "deep": {"list": [1, 2.5, None, True]}},
        "labels": {"team": "web"},
        "priority": 7,
        "recovery": Recovery.RESUME,
        "run_after": LOOKED_BACK,
        "timeout": 12.5,
        "definition": "name: web",
        "workflow_version": "v1",
        "workflow_digest": "sha256:1",
        "message": "by hand",
        "retry_of": "run-before",
    },
}


class Waiting:
    """A store whose user has looked, found nothing, and listens."""

    def __init__(self, store: PostgresStore, heard: asyncio.Event) -> None:
        self.store = store
        self._heard = heard

    async def hears(self) -> None:
        await self._heard.wait()
        self._heard.clear()

    async def finds(self) -> list[WaitingRun]:
        return await self.store.find_waiting(["default"], limit=2)


@asynccontextmanager
async def waiting(url: str) -> AsyncIterator[Waiting]:
    async with PostgresStore(url) as store, listening(store, QUEUE) as heard:
        heard.clear()
        who = Waiting(store, heard)
        assert await who.finds() == []
        yield who


@pytest.mark.parametrize("fields", RUNS.values(), ids=RUNS)
async def test_what_is_heard_is_what_a_look_finds(
    postgres_database: TestDatabase, fields: dict[str, Any]
) -> None:
    async with waiting(postgres_database.url) as who, PostgresStore(postgres_database.url) as other:
        await create(other, **fields)
        await who.hears()
        (looked,) = await other.find_waiting(["default"], limit=2)
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            somebody.execute("update tenure.runs set readiness = 0")  # a look would find nothing
        (heard,) = await who.finds()
        assert heard == looked
        assert await who.finds() == []


async def test_run_that_was_heard_of_begins(postgres_database: TestDatabase) -> None:
    async with waiting(postgres_database.url) as who, PostgresStore(postgres_database.url) as other:
        run = await create(other)
        await who.hears()
        (heard,) = await who.finds()
        await who.store.begin_run(begin_run(heard.snapshot))
        assert (await other.get_run(run.run_id)).status is RunStatus.RUNNING


async def test_run_that_has_changed_since_does_not_begin(postgres_database: TestDatabase) -> None:
    async with waiting(postgres_database.url) as who, PostgresStore(postgres_database.url) as other:
        run = await create(other)
        await who.hears()
        (heard,) = await who.finds()
        await other.update_run(annotate(run, found="something"))
        with pytest.raises(VersionConflict):
            await who.store.begin_run(begin_run(heard.snapshot))
        assert (await other.get_run(run.run_id)).status is RunStatus.QUEUED


async def test_run_that_comes_while_others_wait_is_not_preferred(
    postgres_database: TestDatabase,
) -> None:
    url = postgres_database.url
    async with waiting(url) as who, PostgresStore(url) as other, PostgresStore(url) as third:
        await other.update_runs([new_run(), new_run()])
        await who.hears()
        both = await who.finds()
        await create(third)
        await who.hears()
        assert len(both) == 2
        assert await who.finds() == both


async def test_what_may_have_been_missed_is_looked_for(postgres_database: TestDatabase) -> None:
    async with waiting(postgres_database.url) as who, PostgresStore(postgres_database.url) as other:
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            somebody.execute(f"select pg_terminate_backend(pid) from ({LISTENERS}) l")
            await who.hears()  # it listens again
            await create(other)
            await who.hears()
            somebody.execute("update tenure.runs set readiness = 0")
        assert await who.finds() == []


async def test_large_run_is_announced_without_its_record(postgres_database: TestDatabase) -> None:
    async with waiting(postgres_database.url) as who, PostgresStore(postgres_database.url) as other:
        run = await create(other, vars={"much": "✓" * 3000})
        await who.hears()
        (found,) = await who.finds()
        assert found.snapshot == run


async def test_run_that_waits_for_approval_is_not_heard_of(
    postgres_database: TestDatabase,
) -> None:
    async with waiting(postgres_database.url) as who, PostgresStore(postgres_database.url) as other:
        await create(other, approval=Approval(required=True))
        await create(other)
        await who.hears()
        (found,) = await who.finds()
        assert not found.snapshot.approval.required


async def test_refused_creation_offers_nothing(postgres_database: TestDatabase) -> None:
    async with waiting(postgres_database.url) as who, PostgresStore(postgres_database.url) as other:
        run = await create(who.store)
        await who.hears()
        (found,) = await who.finds()
        with pytest.raises(RunExists):
            await other.create_run(new_run(run_id=run.run_id, vars={"other": "one"}))
        await who.hears()
        (again,) = await who.finds()
        assert again == found


@pytest.mark.parametrize("seal", ["", "ü", "0" * 64, None], ids=["no", "odd", "wrong", "older"])
async def test_record_that_somebody_else_sent_is_not_believed(
    postgres_database: TestDatabase, seal: str | None
) -> None:
    """Who can connect can send hints, without any right in our schema."""
    url = postgres_database.url
    async with waiting(url) as who, PostgresStore(url) as other:
        await create(other, vars={"target": "staging"})
        await who.hears()
        with psycopg.connect(url, autocommit=True) as somebody:
            raw = psycopg.RawCursor(somebody)
            found = raw.execute(SQL["waiting_runs"], [["default"], 2]).fetchone()
            somebody.execute("update tenure.runs set readiness = 0")  # a look finds nothing
            assert len(await who.finds()) == 1  # as announced
            assert found is not None
            assert await who.finds() == []
            if seal is None:  # a true one, of what was true
                seal = seal_of(_secret(somebody), found[0].encode())
            forged = found[0].replace("staging", "production")
            said = f'{{"topics": ["{QUEUE}"], "run": {forged}, "seal": "{seal}"}}'
            somebody.execute("select pg_notify('tenure_queue', %s)", [said])
            await who.hears()
            assert await who.finds() == []


async def test_genuine_record_is_of_no_use_to_another_queue(
    postgres_database: TestDatabase,
) -> None:
    """Who can connect can hear hints, and send one on to whom it was not meant for."""
    url = postgres_database.url
    async with waiting(url) as who, PostgresStore(url) as other:
        await create(other, queue="secure")
        with psycopg.connect(url, autocommit=True) as somebody:
            raw = psycopg.RawCursor(somebody)
            found = raw.execute(SQL["waiting_runs"], [["secure"], 2]).fetchone()
            assert found is not None
            seal = seal_of(_secret(somebody), found[0].encode())
            said = f'{{"topics": ["{QUEUE}"], "run": {found[0]}, "seal": "{seal}"}}'
            somebody.execute("select pg_notify('tenure_queue', %s)", [said])
            await who.hears()
            assert await who.finds() == []


def _secret(somebody: psycopg.Connection[Any]) -> str:
    row = somebody.execute("select secret from tenure.seal").fetchone()
    assert row is not None
    return str(row[0])


async def test_what_cannot_be_read_is_a_hint_too(postgres_database: TestDatabase) -> None:
    url = postgres_database.url
    async with waiting(url) as who, PostgresStore(url) as other:
        with psycopg.connect(url, autocommit=True) as somebody:
            line = somebody.execute(LISTENERS).fetchall()
            deep = f'{{"topics": [], "run": {"[" * 3000}{"]" * 3000}}}'
            for payload in ("", "{", '{"topics": 1}', "[1]", "null", deep):
                somebody.execute("select pg_notify('tenure_queue', %s)", [payload])
                await who.hears()
            assert somebody.execute(LISTENERS).fetchall() == line, "it was made anew"
        run = await create(other)
        await who.hears()
        (found,) = await who.finds()
        assert found.snapshot.run_id == run.run_id
