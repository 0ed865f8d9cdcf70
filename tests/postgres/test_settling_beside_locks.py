"""Callbacks are settled while somebody holds rows they need: nobody else's wait for that, and what
was not settled is settled, with all that it shows on its run, when it is sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import LiteralString

import psycopg
import pytest

from tenure.model.errors import StoreUnavailable, TenureError
from tenure.model.outbox import Delivered, Delivery, GiveUp, Outcome, Settlement
from tenure.model.status import DeliveryState
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create_embedded
from tenure.testing.factories import HOOK, end_run, unique
from tests.postgres.database import migrated
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

RUN: LiteralString = "select 1 from tenure.runs where run_id = %s for update"
HEAD: LiteralString = """
select 1 from tenure.deliveries d join tenure.runs r using (seq) where r.run_id = %s
order by d.number limit 1 for update of d
"""
NEXT: LiteralString = HEAD.replace("limit 1", "offset 1 limit 1")


@pytest.fixture
async def url(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists settling with (force)")
    postgres_server.execute("create database settling")
    url = postgres_server.url("settling")
    await migrated(url)
    return url


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(f"{url}?statement_timeout=5&connections=1") as store:
        yield store


@pytest.fixture
def somebody(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url) as connection:
        yield connection


async def two_held(store: PostgresStore, seconds: float = 60.0) -> list[Delivery]:
    """Of two runs that have ended: each has another callback behind this one."""
    for number in range(2):
        run = await create_embedded(store, f"owner-{number}", callbacks=(HOOK,))
        await store.update_run(end_run(run))
    return await store.claim_deliveries(unique("token"), seconds=seconds)


def settlement(held: Delivery, outcome: Outcome) -> Settlement:
    return Settlement(held.id, held.token or "", outcome)


def state_of(answer: Delivery | TenureError) -> DeliveryState | str:
    return answer.state if isinstance(answer, Delivery) else str(answer)


@pytest.mark.parametrize("what", [RUN, HEAD, NEXT], ids=["run", "callback", "the next one"])
async def test_rows_that_somebody_holds_delay_no_other(
    store: PostgresStore, somebody: psycopg.Connection, what: LiteralString
) -> None:
    first, second = await two_held(store)
    batch = [settlement(first, GiveUp("410")), settlement(second, Delivered())]
    somebody.execute(what, (first.run_id,))
    busy, settled = await store.settle_deliveries(batch)
    assert isinstance(busy, StoreUnavailable)
    assert "locked" in str(busy)
    assert state_of(settled) == DeliveryState.DELIVERED
    assert (await store.get_delivery(first.id)).state is DeliveryState.WAITING
    assert (await store.get_run(first.run_id)).callback_error is None
    (_, again), claimed = await store.settle_and_claim(batch, unique("token"))
    assert again == settled
    assert [one.run_id for one in claimed] == [second.run_id]
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.settle_delivery(first.id, first.token or "", GiveUp("410"))
    somebody.rollback()
    dead, _ = await store.settle_deliveries(batch)
    assert state_of(dead) == DeliveryState.DEAD
    error = (await store.get_run(first.run_id)).callback_error
    assert error is not None
    assert error.error == "410"
    assert [one.run_id for one in await store.claim_deliveries(unique("token"))] == [first.run_id]


async def test_dead_letter_that_nobody_could_tell_of_goes_to_the_next_relay(
    store: PostgresStore, somebody: psycopg.Connection
) -> None:
    """The first is gone before the run is let go: what it knew is found out again."""
    held, other = await two_held(store, seconds=0.001)
    somebody.execute(RUN, (held.run_id,))
    await store.settle_deliveries([settlement(held, GiveUp("410")), settlement(other, Delivered())])
    somebody.rollback()
    found = {one.run_id: one for one in await store.claim_deliveries(unique("token"))}
    assert found[held.run_id].id == held.id
    await store.settle_deliveries([settlement(found[held.run_id], GiveUp("410, still"))])
    error = (await store.get_run(held.run_id)).callback_error
    assert error is not None
    assert error.error == "410, still"
