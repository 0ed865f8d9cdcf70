"""Connections that are made while whoever asked for them runs out of patience."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest

from tenure.model.errors import StoreUnavailable
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.connections import Purpose
from tenure.stores.postgres.lane import Lane
from tenure.stores.postgres.line import Line
from tenure.testing.contracts.acts import create_embedded, lease_of
from tests.postgres.database import TestDatabase
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server
from tests.postgres.test_connection_count import count, until_there_are

pytestmark = pytest.mark.slow

LATE = 0.2
"""Seconds for each answer."""
PATIENCE = 0.6
"""Less than a connection takes, which is four of them; more than a call on it does."""
ENOUGH = 20.0


@pytest.fixture
async def proxy(postgres_server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def far_away(postgres_server: Server, postgres_going: TestDatabase, proxy: Proxy) -> str:
    postgres_going.empty()
    proxy.answer_late(LATE)
    return postgres_server.url("going", proxy.port, prepared="yes", application_name="counted")


async def in_time(call: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(PATIENCE):
            await call
    except TimeoutError:
        return False
    return True


def lane(store: PostgresStore, purpose: Purpose) -> Lane:
    return store._connections._lanes[asyncio.get_running_loop()][purpose]


async def test_it_is_there_for_who_asks_next(postgres_going: TestDatabase, far_away: str) -> None:
    """A keeper has so much time for a round, and then begins the next one."""
    async with PostgresStore(postgres_going.url) as near, PostgresStore(far_away) as store:
        lease = lease_of(await create_embedded(near))
        async with asyncio.timeout(ENOUGH):
            while not await in_time(store.renew_leases([lease], 60.0)):
                assert not lane(store, Purpose.KEEPING).idle
        assert await asyncio.to_thread(count, postgres_going) == 1  # the same one all the time
        assert len(lane(store, Purpose.KEEPING).idle) == 1  # and nobody else's meanwhile


async def test_it_waits_if_nobody_asks(far_away: str, proxy: Proxy) -> None:
    async with PostgresStore(far_away) as store:
        assert not await in_time(store.list_runs())
        async with asyncio.timeout(ENOUGH):
            while not lane(store, Purpose.READING).idle:
                await asyncio.sleep(0.01)
        proxy.refuse()
        await store.list_runs()


async def test_who_waits_for_it_is_told_why_it_failed(far_away: str, proxy: Proxy) -> None:
    async with PostgresStore(far_away) as store:
        assert not await in_time(store.list_runs())
        asking = asyncio.create_task(store.list_runs())
        await asyncio.sleep(0)
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            await asking
        proxy.answer_late(0.0)
        await store.list_runs()


async def test_it_ends_with_the_store(far_away: str, proxy: Proxy) -> None:
    store = PostgresStore(far_away)
    assert not await in_time(store.list_runs())
    (making,) = lane(store, Purpose.READING)._left
    proxy.hold_answers()
    await store.close()
    await asyncio.wait([making], timeout=ENOUGH / 4)
    assert making.cancelled()


async def test_who_waits_for_room_is_told_that_it_ended(far_away: str) -> None:
    store = PostgresStore(f"{far_away}&connections=1")
    first = asyncio.create_task(store.list_runs())
    await asyncio.sleep(0.01)
    second = asyncio.create_task(store.list_runs())
    await asyncio.sleep(0.01)
    first.cancel()  # its connection is left
    await store.close()
    with pytest.raises(StoreUnavailable, match="has been closed"):
        await second


async def test_who_waits_for_one_that_is_given_up_is_told_so(far_away: str) -> None:
    async with PostgresStore(far_away) as store:
        assert not await in_time(store.list_runs())
        (making,) = lane(store, Purpose.READING)._left
        asking = asyncio.create_task(store.list_runs())
        await asyncio.sleep(0)
        making.cancel()  # as somebody does who closes it in another thread
        with pytest.raises(StoreUnavailable, match="has been closed"):
            await asking


async def test_what_was_lent_when_the_store_was_closed_ends_when_it_comes_back(
    postgres_going: TestDatabase, far_away: str
) -> None:
    store = PostgresStore(far_away)
    await store.list_runs()
    asking = asyncio.create_task(store.list_runs())
    await asyncio.sleep(0)
    await store.close()
    await asking
    await until_there_are(0, postgres_going)


async def test_what_comes_back_sooner_is_taken_instead(far_away: str) -> None:
    async with PostgresStore(far_away) as store:
        await store.list_runs()
        first = asyncio.create_task(store.list_runs())
        await asyncio.sleep(0)
        second = asyncio.create_task(store.list_runs())
        await asyncio.gather(first, second)
        reading = lane(store, Purpose.READING)
        assert len(reading.idle) == len(reading._left) == 1  # one is still being made
        async with asyncio.timeout(ENOUGH):
            while reading._left:
                await asyncio.sleep(0.01)
        assert len(reading.idle) == 2


async def test_what_came_back_to_who_was_cancelled_is_kept(postgres_going: TestDatabase) -> None:
    async def never() -> Line:
        await asyncio.Event().wait()
        raise AssertionError

    async with PostgresStore(postgres_going.url) as store:
        await store.list_runs()
        (line,) = lane(store, Purpose.READING).idle
        other = Lane(2)
        asking = asyncio.create_task(other.make(never))
        await asyncio.sleep(0)
        other.keep(line)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert other.idle == [line]
        other.close()
