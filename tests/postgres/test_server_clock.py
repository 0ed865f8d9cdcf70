"""What is decided about a run is decided by the server's clock, read when nobody else can change
the run any more: not by what a client thinks the time is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tenure.model.errors import InvalidTransition, NotRunnable
from tenure.model.status import RunStatus
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import claim, create, create_embedded, write
from tenure.testing.contracts.run_states import waiting
from tenure.testing.factories import (
    approve,
    begin_run,
    claim_request,
    expire,
    fencing_of,
    new_run,
    unique,
)
from tests.postgres.database import TestDatabase
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

THEN = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)


class SetClock:
    """The server's clock is set, and no client hears of it until it asks."""

    def __init__(self, database: TestDatabase) -> None:
        self._database, self.now = database, THEN
        database.set_clock(THEN)

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self._database.set_clock(self.now)


@pytest.fixture
def clock(postgres_database: TestDatabase) -> SetClock:
    return SetClock(postgres_database)


@pytest.fixture
async def store(clock: SetClock, postgres_database: TestDatabase) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database.url) as store:
        yield store


async def test_approval_that_comes_too_late_is_refused(
    store: PostgresStore, clock: SetClock
) -> None:
    run = await waiting(store, 30.0)
    clock.advance(31)
    with pytest.raises(InvalidTransition):
        await store.update_run(approve(run))
    ended = await write(store, expire(run))
    assert (ended.status, ended.finished_at) == (RunStatus.CANCELED, clock.now)


async def test_approval_in_time_is_stamped_with_the_time_it_was_judged_by(
    store: PostgresStore, clock: SetClock
) -> None:
    run = await waiting(store, 30.0)
    clock.advance(29)
    with pytest.raises(InvalidTransition):
        await store.update_run(expire(run))
    assert (await write(store, approve(run))).approval.at == clock.now


async def test_run_is_claimed_as_soon_as_its_time_has_come(
    store: PostgresStore, clock: SetClock
) -> None:
    later = clock.now + timedelta(seconds=30)
    one, two, three = [await create(store, run_after=later) for _ in range(3)]
    clock.advance(29)
    with pytest.raises(NotRunnable):
        await claim(store, one.run_id)
    with pytest.raises(NotRunnable):
        await store.begin_run(begin_run(two))
    assert await store.claim_runs(claim_request(limit=3)) == []
    clock.advance(2)
    held = await claim(store, one.run_id)
    await store.begin_run(begin_run(two))
    (taken,) = await store.claim_runs(claim_request(limit=3))
    assert taken.snapshot.run_id == three.run_id
    assert held.updated_at == taken.snapshot.updated_at == clock.now


async def test_run_that_was_seen_to_wait_is_begun(store: PostgresStore, clock: SetClock) -> None:
    """Decided on what is remembered, at a time at which it could not begin yet."""
    await create(store, run_after=clock.now + timedelta(seconds=30))
    clock.advance(31)
    assert await store.claim_runs(claim_request(limit=0)) == []  # it is ready
    (seen,) = await store.find_waiting(("default",), limit=1)
    assert (await store.begin_run(begin_run(seen.snapshot))).version == 2


async def test_run_is_given_back_at_the_servers_time(store: PostgresStore, clock: SetClock) -> None:
    run = await create_embedded(store)
    clock.advance(60)
    await store.release_lease(run.run_id, fencing_of(run), unique("release"))
    assert (await store.get_run(run.run_id)).updated_at == clock.now


async def test_answer_that_was_long_under_way_does_not_set_the_clock_back(
    postgres_server: Server, postgres_going: TestDatabase
) -> None:
    """Nor does a process that stands still while its answer waits to be read."""
    postgres_going.empty()
    with psycopg.connect(postgres_going.url, autocommit=True) as onlooker:
        async with (
            Proxy(postgres_server.port) as proxy,
            PostgresStore(postgres_going.url_through(proxy.port)) as store,
        ):
            await create(store)
            proxy.hold_answers()
            writing = asyncio.create_task(store.create_run(new_run()))
            while onlooker.execute("select count(*) from tenure.runs").fetchone() != (2,):
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.5)
            proxy.let_answers_pass()
            await writing
            ((now,),) = onlooker.execute("select tenure.clock()").fetchall()
            run = await create(store)
    assert run.created_at is not None
    assert run.created_at > now - timedelta(seconds=0.1)
