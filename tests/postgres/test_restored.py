"""A database that was restored hands out versions and fences that somebody remembers already.
Version, fence and owner each keep him from writing, if the other two are those he remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from tenure.model.errors import LeaseLost, VersionConflict
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Receipt
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import claim, create, record_of, start_first_step, write
from tenure.testing.contracts.shared import EACH_WRITE, OwnersWrite
from tenure.testing.factories import HOOK, annotate, change_run, fencing_of, unique
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow

TABLES = ("runs", "run_specs", "steps", "tasks", "journal", "deliveries")


class Backup:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        for table in TABLES:
            self._connection.execute(f"create temporary table {table} as table tenure.{table}")

    def restore(self) -> None:
        for table in TABLES:
            self._connection.execute(f"delete from tenure.{table}")
            self._connection.execute(
                f"insert into tenure.{table} overriding system value table pg_temp.{table}"
            )
        self._connection.close()


@pytest.fixture
async def stores(
    postgres_database: TestDatabase,
) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """The one that remembers, and the one that came after."""
    url = postgres_database.url
    async with PostgresStore(url) as before, PostgresStore(url) as after:
        yield before, after


async def _whole(store: PostgresStore, run_id: str) -> tuple[object, ...]:
    events = await store.read_events(run_id)
    callbacks = await store.list_deliveries(run_id=run_id)
    return record_of(await store.get_run(run_id)), events, callbacks


async def _claimed(store: PostgresStore, run_id: str, owner_id: str) -> RunSnapshot:
    return await start_first_step(store, await claim(store, run_id, owner_id))


@EACH_WRITE
async def test_other_owner_under_the_same_version_and_fence(
    stores: tuple[PostgresStore, PostgresStore],
    postgres_database: TestDatabase,
    owners_write: OwnersWrite,
) -> None:
    before, after = stores
    run = await create(before, callbacks=(HOOK,))
    backup = Backup(postgres_database.url)
    held = await _claimed(before, run.run_id, "owner-a")
    backup.restore()
    other = await _claimed(after, run.run_id, "owner-b")
    assert (other.version, other.fence) == (held.version, held.fence)
    stored = await _whole(after, run.run_id)
    with pytest.raises(LeaseLost) as lost:
        await before.update_run(owners_write(held))
    assert lost.value.owner_id == "owner-b"
    assert await _whole(after, run.run_id) == stored


@EACH_WRITE
async def test_other_fence_under_the_same_version_and_owner(
    stores: tuple[PostgresStore, PostgresStore],
    postgres_database: TestDatabase,
    owners_write: OwnersWrite,
) -> None:
    before, after = stores
    run = await create(before, callbacks=(HOOK,))
    backup = Backup(postgres_database.url)
    held = await _claimed(before, run.run_id, "owner-a")
    for word in ("one", "two"):
        held = await write(before, change_run(held, message=word))
    backup.restore()
    first = await claim(after, run.run_id, "owner-a")
    await after.release_lease(run.run_id, fencing_of(first), unique("release"))
    again = await _claimed(after, run.run_id, "owner-a")
    assert (again.version, again.owner_id) == (held.version, held.owner_id)
    stored = await _whole(after, run.run_id)
    with pytest.raises(LeaseLost) as lost:
        await before.update_run(owners_write(held))
    assert lost.value.fence == again.fence == held.fence + 1
    assert await _whole(after, run.run_id) == stored


@EACH_WRITE
async def test_other_version_under_the_same_fence_and_owner(
    stores: tuple[PostgresStore, PostgresStore],
    postgres_database: TestDatabase,
    owners_write: OwnersWrite,
) -> None:
    """Also a lower one: what was acknowledged is gone, and is not written as if it were there."""
    before, after = stores
    run = await create(before, callbacks=(HOOK,))
    held = await _claimed(before, run.run_id, "owner-a")
    backup = Backup(postgres_database.url)
    held = await write(before, change_run(held, message="lost"))
    backup.restore()
    stored = await _whole(after, run.run_id)
    with pytest.raises(VersionConflict) as conflict:
        await before.update_run(owners_write(held))
    assert conflict.value.version == held.version - 1
    assert await _whole(after, run.run_id) == stored


async def test_who_was_written_elsewhere_does_not_harm_the_others_of_a_batch(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    """All are decided from memory, and written by one statement."""
    store, elsewhere = stores
    runs = [await create(store) for _ in range(3)]
    held = [await _claimed(store, run.run_id, "owner-a") for run in runs]
    noted = await write(elsewhere, annotate(runs[1], found="outside"))
    outcomes = await store.update_runs([change_run(run, message="on") for run in held])
    assert [type(outcome) for outcome in outcomes] == [Receipt, VersionConflict, Receipt]
    assert await store.get_run(noted.run_id) == noted
    message = [(await store.get_run(run.run_id)).message for run in runs]
    assert message == ["on", None, "on"]
