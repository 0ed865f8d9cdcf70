"""Many processes on one database: no acknowledged write is lost or made twice, and no callback is
left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest
from msgspec.structs import replace

from tenure.model.errors import (
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    VersionConflict,
)
from tenure.model.outbox import Delivered
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Event, NewDelivery, NewRun, Receipt, Update
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create, create_embedded
from tenure.testing.factories import (
    HOOK,
    annotate,
    change_run,
    embedded_run,
    lease_request,
    new_run,
    unique,
)
from tests.postgres.database import migrated
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

ROUNDS = 60
REFUSALS = (LeaseLost, LeaseHeld, NotRunnable, VersionConflict, InvalidTransition)


@pytest.fixture
async def url(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists crowd with (force)")
    postgres_server.execute("create database crowd")
    url = postgres_server.url("crowd")
    await migrated(url)
    return url


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[PostgresStore]]:
    """Each with a memory of its own, as if in a process of its own."""
    opened = [PostgresStore(url) for _ in range(4)]
    yield opened
    for store in opened:
        await store.close()


def telling(run: RunSnapshot, *deliveries: NewDelivery) -> Update:
    update = change_run(run, message=unique("said"))
    events = (Event(type="run.note", status="running"),)
    return replace(update, effect=replace(update.effect, events=events, deliveries=deliveries))


async def test_owners_that_take_runs_from_each_other_lose_no_acknowledged_write(
    stores: list[PostgresStore],
) -> None:
    runs = [(await create(stores[0])).run_id for _ in range(5)]
    acknowledged: Counter[tuple[str, int]] = Counter()

    async def own(store: PostgresStore, owner_id: str) -> None:
        for number in range(ROUNDS):
            run_id = runs[number % len(runs)]
            try:
                claimed = await store.claim_run(run_id, lease_request(owner_id, seconds=0.01))
                run = claimed.snapshot
                for _ in range(3):
                    receipt = await store.update_run(telling(run))
                    acknowledged[run_id, receipt.version] += 1
                    run = replace(run, version=receipt.version)
            except REFUSALS:
                continue

    async def disturb(store: PostgresStore) -> None:
        """Each is a new note, and so a version: what is asked for again writes nothing."""
        for number in range(ROUNDS):
            run = await store.get_run(runs[number % len(runs)])
            receipt = await store.update_run(annotate(run, number=number))
            acknowledged[run.run_id, receipt.version] += 1

    owners = (own(store, f"owner-{i}") for i, store in enumerate(stores[:3]))
    await asyncio.gather(*owners, disturb(stores[3]))
    assert acknowledged.total() > ROUNDS, "no owner wrote anything"
    assert set(acknowledged.values()) == {1}, "two were told the same version"
    for run_id in runs:
        run = await stores[0].get_run(run_id)
        events = await stores[0].read_events(run_id, limit=100_000)
        assert sorted({event.version for event in events}) == list(range(1, run.version + 1))
        fences = [event.fence for event in events]
        assert fences == sorted(fences)
        assert len(run.annotations) == ROUNDS // len(runs)
    assert (await stores[0].check_store()).problems == ()


LINGER = """
create function tenure.linger() returns trigger language plpgsql
  as $$ begin perform pg_sleep(0.5); return null; end $$;
create trigger linger after insert on tenure.deliveries
  for each statement execute function tenure.linger()
"""


async def test_no_callback_stays_behind_one_that_is_settled_at_that_moment(
    url: str, stores: list[PostgresStore]
) -> None:
    """The next one is stored, and not yet committed, while the one before it is settled."""
    owner, relay = stores[:2]
    run = await create_embedded(owner, callbacks=(HOOK,))
    first, second = (NewDelivery(id=name, target=HOOK.name, seq=0) for name in ("one", "two"))
    receipt = await owner.update_run(telling(run, first))
    while held := await relay.claim_deliveries("token-1"):
        last = held[0]
        if last.id == "one":
            break
        await relay.settle_delivery(last.id, "token-1", Delivered())
    with psycopg.connect(url, autocommit=True) as somebody:
        somebody.execute(LINGER)
        update = telling(replace(run, version=receipt.version), second)
        writing = asyncio.create_task(owner.update_run(update))
        while not somebody.execute(
            "select 1 from pg_stat_activity where wait_event = 'PgSleep'"
        ).fetchall():
            await asyncio.sleep(0.005)
        await relay.settle_delivery("one", "token-1", Delivered())
    await writing
    assert [delivery.id for delivery in await relay.claim_deliveries("token-2")] == ["two"]


WAITING = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"


SLOWLY = """
create function tenure.slowly() returns trigger language plpgsql
  as $$ begin perform pg_sleep(0.2); return new; end $$;
create trigger slowly before insert on {} for each row execute function tenure.slowly()
"""
"""Time enough for two to come in each other's way."""


@pytest.mark.parametrize("new", [new_run, embedded_run])
async def test_who_create_the_same_runs_in_another_order_do_not_wait_in_a_circle(
    url: str, stores: list[PostgresStore], new: Callable[[], NewRun]
) -> None:
    with psycopg.connect(url, autocommit=True) as somebody:
        somebody.execute(SLOWLY.format("tenure.runs"))
    runs = [new() for _ in range(3)]
    outcomes = await asyncio.gather(stores[0].update_runs(runs), stores[1].update_runs(runs[::-1]))
    for receipts in outcomes:
        assert [type(receipt) for receipt in receipts] == [Receipt] * 3
