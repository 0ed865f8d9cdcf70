"""One store, used from event loops in several threads: each has connections of its own, which
nobody else touches, and which end with it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier, Event, Thread

import pytest

from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.connections import Purpose
from tenure.stores.postgres.servers import Servers
from tenure.testing.factories import new_run
from tests.postgres.database import TestDatabase
from tests.postgres.test_connection_count import count, until_there_are
from tests.runtime.puppets import PATIENCE

pytestmark = pytest.mark.slow

THREADS = 8
ROUNDS = 12


@pytest.fixture
def counted(postgres_going: TestDatabase) -> str:
    postgres_going.empty()
    return f"{postgres_going.url}?application_name=counted"


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[], Awaitable[object]]) -> None:
    """In a new loop of each thread, which then ends."""
    barrier = Barrier(THREADS)

    def run() -> None:
        barrier.wait()
        asyncio.run(_awaited(work))

    with ThreadPoolExecutor(THREADS) as threads:
        for each in [threads.submit(run) for _ in range(THREADS)]:
            each.result()


async def _awaited(work: Callable[[], Awaitable[object]]) -> None:
    await work()


def test_loops_that_have_ended_are_forgotten_once(
    counted: str, postgres_going: TestDatabase, restless: None
) -> None:
    """By whichever thread is first to find them."""
    store = PostgresStore(counted)
    for _ in range(ROUNDS):
        at_once(lambda: store.create_run(new_run()))
    assert count(postgres_going) <= 3 * THREADS
    asyncio.run(store.close())
    asyncio.run(until_there_are(0, postgres_going))


def test_servers_are_there_while_another_thread_puts_them_in_order(restless: None) -> None:
    servers = Servers(Address.parse("postgresql://one,two,three/runs"))
    over = Event()

    def put_in_order() -> None:
        while not over.is_set():
            servers._ask_first(servers._in_order[-1])

    thread = Thread(target=put_in_order)
    thread.start()
    try:
        assert {len(servers._in_order) for _ in range(100_000)} == {3}
    finally:
        over.set()
        thread.join()


async def test_store_is_closed_while_loops_of_other_threads_go_on(
    counted: str, postgres_going: TestDatabase
) -> None:
    """Their connections end too, and the numbers of their sockets are free for others."""
    store = PostgresStore(counted)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:

        def there(work: Awaitable[object]) -> Awaitable[object]:
            return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_result(work), loop))

        await there(store.create_run(new_run()))
        await until_there_are(1, postgres_going)
        (line,) = store._connections._lanes[loop][Purpose.WRITING].idle
        number = line.fileno()
        await store.close()
        await until_there_are(0, postgres_going)
        await there(_watch_somebody_else(number))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _watch_somebody_else(number: int) -> None:
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    with ExitStack() as others:
        ends = {-1: -1}
        while number not in ends:
            one, other = [others.enter_context(end).fileno() for end in socket.socketpair()]
            ends = {one: other, other: one}
        loop.add_reader(number, heard.set)
        os.write(ends[number], b"!")
        async with asyncio.timeout(PATIENCE):
            await heard.wait()
        loop.remove_reader(number)


async def _result(work: Awaitable[object]) -> object:
    return await work


async def test_listeners_of_other_threads_hang_up_when_the_store_is_closed(
    counted: str, postgres_going: TestDatabase
) -> None:
    store, leave = PostgresStore(counted), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def listen() -> None:
        loops.append(asyncio.get_running_loop())
        async with store.listen(["queue:default"], lambda: None):
            await leave.wait()

    thread = Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    try:
        await until_there_are(2, postgres_going)  # one of them to find out how hints are sealed
        await store.close()
        await until_there_are(0, postgres_going)
    finally:
        loops[0].call_soon_threadsafe(leave.set)
        await asyncio.to_thread(thread.join)
