"""Programs that use Tenure hear of failures from Tenure: what the driver mutters about them besides
is kept from their logs and from standard error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from tenure.aio import end
from tenure.model.errors import StoreUnavailable
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.connections import Purpose
from tests.postgres.database import TestDatabase
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

SOON = 20.0
LARGE = "x" * 24 * 1024 * 1024


@pytest.fixture
async def proxy(postgres_server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_server.port) as proxy, asyncio.timeout(SOON):
        yield proxy


@pytest.fixture
async def store(postgres_database: TestDatabase, proxy: Proxy) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database.url_through(proxy.port)) as store:
        await store.list_runs()
        yield store


async def test_failed_cancel_request_of_a_call_that_was_given_up(
    store: PostgresStore, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.hold_answers()
    call = asyncio.ensure_future(store.list_runs())
    await asyncio.wait([call], timeout=0.1)
    proxy.refuse()
    asyncio.get_running_loop().call_later(0.3, proxy.let_answers_pass)
    await end(call)
    assert caplog.messages == []


async def test_line_that_ends_while_a_trip_is_being_sent(
    store: PostgresStore, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.read_no_more()
    asyncio.get_running_loop().call_later(0.3, proxy.cut)
    with pytest.raises(StoreUnavailable):
        async with store._connections.session(Purpose.READING) as session:
            await session.together(("begin",), ("announce", ["a"], [LARGE]), ("commit",))
    assert caplog.messages == []


async def test_driver_goes_on_to_speak_to_others(
    store: PostgresStore,
    proxy: Proxy,
    postgres_database: TestDatabase,
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = postgres_database.url_through(proxy.port)
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    call = asyncio.ensure_future(connection.execute("select pg_sleep(1)"))
    await asyncio.wait([call], timeout=0.1)
    proxy.refuse()
    await end(call)
    await connection.close()
    assert "query cancellation failed" in caplog.text
