"""What is decided about a run is decided by the server's clock, read when nobody else can change
the run any more: not by what a client thinks the time is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from tenure.model.errors import InvalidTransition, NotRunnable
from tenure.model.outbox import Delivered, Delivery, GiveUp, RetryLater, Settlement
from tenure.model.status import RunStatus
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import claim, create, create_embedded, write
from tenure.testing.contracts.run_states import waiting
from tenure.testing.factories import (
    HOOK,
    approve,
    begin_run,
    claim_request,
    expire,
)
from tests.postgres.database import TestDatabase

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


async def test_callback_is_never_settled_before_its_attempt(
    store: PostgresStore, clock: SetClock
) -> None:
    """The attempt takes five seconds by the server's clock; this client heard of none of them."""
    await create_embedded(store, callbacks=(HOOK,))
    (held,) = await store.claim_deliveries("one")
    clock.advance(5)
    later = await store.settle_delivery(held.id, "one", RetryLater(5.0, "busy"))
    assert later.due_at == clock.now + timedelta(seconds=5)
    clock.advance(6)
    (held,) = await store.claim_deliveries("two")
    clock.advance(5)
    dead = await store.settle_delivery(held.id, "two", GiveUp("gone"))
    assert dead.died_at == dead.settled_at == clock.now
    clock.advance(5)
    again = await store.requeue_delivery(held.id)
    assert again.due_at == clock.now
    (held,) = await store.claim_deliveries("three")
    clock.advance(5)
    (done,) = await store.settle_deliveries([Settlement(held.id, "three", Delivered())])
    assert isinstance(done, Delivery)
    assert done.settled_at == clock.now
