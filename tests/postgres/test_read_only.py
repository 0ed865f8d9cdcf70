"""A server that was made read-only keeps its connections, and answers whoever reads. It is left all
the same, by everything that leads to it, for the one that takes writes by now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import psycopg
import pytest

from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.model.query import topic_of_queue
from tenure.stores.postgres import PostgresStore, pools
from tenure.stores.postgres.pools import Purpose
from tenure.testing.contracts.acts import create, create_embedded
from tenure.testing.contracts.events import listening
from tests.postgres.database import migrated
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

SOON = 20.0
QUEUE = topic_of_queue("default")
IS_READ_ONLY = "show transaction_read_only"


class Pair(NamedTuple):
    first: Server
    second: Server

    @property
    def url(self) -> str:
        ports = f"127.0.0.1:{self.first.port},127.0.0.1:{self.second.port}"
        return f"postgresql://tenure@{ports}/switched"


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with Server() as first, Server() as second:
        for each in (first, second):
            each.execute("create database switched")
            asyncio.run(migrated(each.url("switched")))
        yield Pair(first, second)


@pytest.fixture
def pair(servers: Pair) -> Iterator[Pair]:
    yield servers
    set_read_only(servers.first, on=False)


def set_read_only(server: Server, *, on: bool) -> None:
    """Connections stay, as in a switch-over by hand."""
    server.execute(f"alter system set default_transaction_read_only = {'on' if on else 'off'}")
    server.execute("select pg_reload_conf()")
    while True:
        with psycopg.connect(server.url("switched")) as somebody:
            if somebody.execute(IS_READ_ONLY).fetchone() == ("on" if on else "off",):
                return


async def leads_to(store: PostgresStore, server: Server) -> bool:
    """All that the store has made, and keeps."""
    ports = set[int]()
    for purpose in (Purpose.WRITING, Purpose.READING, Purpose.KEEPING):
        async with store._connections.session(purpose) as session:
            ports.add(session.connection.info.port)
    return ports == {server.port}


async def test_a_refused_write_takes_all_to_the_server_that_takes_writes(pair: Pair) -> None:
    async with PostgresStore(pair.url) as store:
        run = await create_embedded(store)
        assert await leads_to(store, pair.first)
        set_read_only(pair.first, on=True)
        with pytest.raises(StoreUnavailable, match="looks for one that does") as refused:
            await create_embedded(store)
        assert "Name the primary" not in str(refused.value), "that is what was done"
        with pytest.raises(RunNotFound):
            await store.get_run(run.run_id)  # these are two stores to begin with
        run = await create_embedded(store)
        assert (await store.get_run(run.run_id)).version == 1
        assert await leads_to(store, pair.second)


async def test_a_process_that_only_reads_notices_when_it_looks(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(pools, "monotonic", lambda: now)
    async with PostgresStore(pair.url) as store:
        await store.list_runs()
        set_read_only(pair.first, on=True)
        await store.list_runs()
        now += pools.LOOK_EVERY_S / 2 + 0.1
        with pytest.raises(StoreUnavailable, match="looks for one that does"):
            await store.list_runs()
        await store.list_runs()
        assert await leads_to(store, pair.second)


async def test_a_listener_hears_what_is_said_on_the_other(pair: Pair) -> None:
    async with PostgresStore(pair.url) as store, listening(store, QUEUE) as heard:
        await create_embedded(store)
        set_read_only(pair.first, on=True)
        heard.clear()
        with pytest.raises(StoreUnavailable):
            await create_embedded(store)
        async with asyncio.timeout(SOON):
            await heard.wait()  # it listens again
            heard.clear()
            async with PostgresStore(pair.second.url("switched")) as other:
                await create(other)
            await heard.wait()


async def test_a_server_that_is_alone_is_found_again(pair: Pair) -> None:
    async with PostgresStore(pair.first.url("switched")) as store:
        run = await create_embedded(store)
        set_read_only(pair.first, on=True)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"made read-only.* Name the primary"):
                await create_embedded(store)
        set_read_only(pair.first, on=False)
        with suppress(StoreUnavailable):  # an attempt to connect may still have met the old state
            await create_embedded(store)
        await create_embedded(store)
        assert (await store.get_run(run.run_id)).version == 1
