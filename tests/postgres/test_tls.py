"""The store over TLS: what came in one record is read to its end, whoever waits for it and however
much fits where it goes."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from tenure.model.errors import StoreUnavailable
from tenure.model.query import topic_of_owner
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.line import Line
from tenure.stores.postgres.servers import Servers
from tenure.testing.contracts.acts import create_embedded
from tenure.testing.contracts.events import listening
from tenure.testing.factories import start_step
from tests.postgres.database import TestDatabase
from tests.postgres.server import Server
from tests.postgres.tls_front import TlsFront

pytestmark = [pytest.mark.slow, pytest.mark.timeout(30)]

ROWS = "select repeat('x', $1::integer) from generate_series(1, 3)"
SIZES = range(4000, 12000, 1300)
"""Three such rows are a record's length and some more."""


@pytest.fixture
async def front(postgres_server: Server, server_tls: ssl.SSLContext) -> AsyncIterator[TlsFront]:
    async with TlsFront(postgres_server.port, server_tls) as front:
        yield front


@pytest.fixture(params=["yes", "no"])
def url(
    front: TlsFront,
    certificate: Path,
    postgres_database: TestDatabase,
    request: pytest.FixtureRequest,
) -> str:
    named = postgres_database.url_through(front.port).replace("127.0.0.1", "localhost")
    return f"{named}?sslmode=verify-full&sslrootcert={certificate}&prepared={request.param}"


@pytest.fixture
async def line(url: str) -> AsyncIterator[Line]:
    line = await Servers(Address.parse(url)).connect()
    assert line.pgconn.ssl_in_use
    yield line
    await line.close()


@pytest.mark.parametrize("size", SIZES)
async def test_answers_of_any_size_come_to_their_end(line: Line, size: int) -> None:
    wanted = [("x" * size,)] * 3
    assert await line.ask(ROWS, [size]) == wanted
    assert await (await line.execute(ROWS, [size])).fetchall() == wanted
    async with line.pipeline():
        cursor = await line.execute(ROWS, [size])
        await line.execute("select 1")
    assert await cursor.fetchall() == wanted


async def test_megabytes_there_and_back(line: Line) -> None:
    text = "x" * (3 << 20)
    assert await line.ask("select $1::text", [text]) == [(text,)]
    rows = await line.ask("select repeat('x', 1000) from generate_series(1, $1::integer)", [3000])
    assert rows == [("x" * 1000,)] * 3000


async def test_parts_of_a_trip(line: Line) -> None:
    answers = await line.ask_in_turn([(ROWS, [size])] for size in SIZES)
    assert [len(rows[2][0]) for rows in answers] == [*SIZES]


async def test_hints_that_come_together(url: str, postgres_database: TestDatabase) -> None:
    """The last of them is the one that is waited for."""
    async with PostgresStore(url) as store, listening(store, topic_of_owner("a")) as heard:
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            for size in (5500, 6300, 7000):
                others = [f'["{number}{"x" * size}"]' for number in range(3)]
                payloads = [*others, f'["{topic_of_owner("a")}"]']
                heard.clear()
                somebody.execute(
                    "select pg_notify('tenure', payload) from unnest(%s::text[]) payload",
                    [payloads],
                )
                await heard.wait()


async def test_store_writes_and_reads(url: str) -> None:
    async with PostgresStore(url) as store:
        run = await create_embedded(store)
        assert (await store.update_run(start_step(run))).version == 2
        assert (await store.get_run(run.run_id)).version == 2


async def test_certificate_of_somebody_else_is_refused(url: str) -> None:
    async with PostgresStore(url.replace("@localhost", "@127.0.0.1")) as store:
        with pytest.raises(StoreUnavailable, match='certificate for "localhost"'):
            await store.list_runs()
