"""A server that was made read-only keeps its connections, and answers whoever reads. It is left all
the same, by everything that leads to it, for the one that takes writes by now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Thread
from typing import NamedTuple

import psycopg
import pytest

from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.model.query import topic_of_queue
from tenure.stores.postgres import PostgresStore, connections
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.connections import Purpose
from tenure.stores.postgres.leaving import Leaving
from tenure.stores.postgres.line import Line
from tenure.stores.postgres.servers import Servers
from tenure.testing.contracts.acts import create, create_embedded, lease_of
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


async def switch(pair: Pair, store: PostgresStore, *in_use: Line) -> None:
    """Until those that the store has made know it too."""
    set_read_only(pair.first, on=True)
    async with asyncio.timeout(SOON):
        for line in (*kept(store), *in_use):
            while await (await line.execute(IS_READ_ONLY, prepare=False)).fetchone() != ("on",):
                await asyncio.sleep(0.01)


def kept(store: PostgresStore) -> list[Line]:
    lanes = store._connections._lanes[asyncio.get_running_loop()].values()
    return [line for lane in lanes for line in lane.idle]


def lead_to(server: Server, store: PostgresStore) -> bool:
    return {line.info.port for line in kept(store)} == {server.port}


async def test_a_refused_write_takes_all_to_the_server_that_takes_writes(pair: Pair) -> None:
    async with PostgresStore(pair.url) as store:
        run = await create_embedded(store)
        await store.renew_leases([lease_of(run)], 60.0)
        await store.list_runs()
        assert lead_to(pair.first, store)
        await switch(pair, store)
        with pytest.raises(StoreUnavailable, match="looks for one that does") as refused:
            await create_embedded(store)
        assert "Name the primary" not in str(refused.value), "that is what was done"
        assert kept(store) == []
        with pytest.raises(RunNotFound):
            await store.get_run(run.run_id)  # these are two stores to begin with
        run = await create_embedded(store)
        await store.renew_leases([lease_of(run)], 60.0)
        assert (await store.get_run(run.run_id)).version == 1
        assert lead_to(pair.second, store)


async def test_who_only_reads_notices_when_he_looks(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(connections, "monotonic", lambda: now)
    async with PostgresStore(pair.url) as store:
        await store.list_runs()
        await switch(pair, store)
        await store.list_runs()
        assert lead_to(pair.first, store)
        now += connections.LOOK_EVERY / 2 + 0.1
        with pytest.raises(StoreUnavailable, match="looks for one that does"):
            await store.list_runs()
        await store.list_runs()
        assert lead_to(pair.second, store)


async def test_who_listens_hears_what_is_said_on_the_other(pair: Pair) -> None:
    async with PostgresStore(pair.url) as store, listening(store, QUEUE) as heard:
        await create_embedded(store)
        await switch(pair, store)
        heard.clear()
        with pytest.raises(StoreUnavailable):
            await create_embedded(store)
        async with asyncio.timeout(SOON):
            await heard.wait()  # it listens again
            heard.clear()
            async with PostgresStore(pair.second.url("switched")) as other:
                await create(other)
            await heard.wait()


async def test_what_is_in_use_meanwhile_is_not_kept(pair: Pair) -> None:
    async with PostgresStore(pair.url) as store:
        await create_embedded(store)
        async with store._connections.session(Purpose.READING):
            await switch(pair, store)
            with pytest.raises(StoreUnavailable):
                await create_embedded(store)
        assert kept(store) == []


async def test_what_came_later_stays_whatever_those_of_before_meet(pair: Pair) -> None:
    async with PostgresStore(pair.url) as store:
        later: list[Line] = []

        async def write_late() -> None:
            async with store._connections.session(Purpose.WRITING) as session:
                await create_embedded(store)
                await switch(pair, store, session.connection)
                with pytest.raises(StoreUnavailable):
                    await create_embedded(store)
                await create_embedded(store)
                later.extend(kept(store))
                await session.all("forget_silent_workers")

        with pytest.raises(StoreUnavailable, match="cannot execute DELETE"):
            await write_late()
        assert later
        assert kept(store) == later


async def test_a_thread_of_its_own_is_no_exception(pair: Pair) -> None:
    async with PostgresStore(pair.url) as store:
        await create_embedded(store)
        loop = asyncio.new_event_loop()
        thread = Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(store.list_runs(), loop).result(SOON)
            (line,) = store._connections._lanes[loop][Purpose.READING].idle
            await switch(pair, store)
            with pytest.raises(StoreUnavailable):
                await create_embedded(store)
            async with asyncio.timeout(SOON):
                while not line.closed:  # by its own loop
                    await asyncio.sleep(0.01)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def test_what_was_being_made_meanwhile_is_not_lent_for_long(pair: Pair) -> None:
    servers, leaving = Servers(Address.parse(pair.url)), Leaving()
    async with await servers.connect() as met, await servers.connect() as made:
        leaving.leave(met, [])
        with leaving.lending(made), pytest.raises(psycopg.OperationalError):
            await made.execute("select 1")


async def test_a_server_that_is_alone_is_found_again(pair: Pair) -> None:
    async with PostgresStore(pair.first.url("switched")) as store:
        run = await create_embedded(store)
        await switch(pair, store)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"made read-only.* Name the primary"):
                await create_embedded(store)
        set_read_only(pair.first, on=False)
        await create_embedded(store)
        assert (await store.get_run(run.run_id)).version == 1
