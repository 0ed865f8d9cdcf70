"""The server's queue of notifications is full, for somebody listens and never looks: hints are
lost, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tenure.model.errors import StoreUnavailable
from tenure.model.query import topic_of_queue
from tenure.model.update import Receipt
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.events import listening
from tenure.testing.factories import cancel, embedded_run, new_run
from tests.postgres.database import migrated
from tests.postgres.server import Server
from tests.runtime.puppets import PATIENCE

pytestmark = pytest.mark.slow

QUEUE = topic_of_queue("default")
A_WHILE = 0.12
"""Seconds after which hints ride in the transaction that writes."""


@pytest.fixture
def server() -> Iterator[Server]:
    """With room for half a megabyte."""
    with Server(max_notify_queue_pages="64") as server:
        server.execute("create database tenure")
        server.execute("create database elsewhere")
        yield server


@contextmanager
def full_queue(server: Server) -> Iterator[None]:
    """By somebody who listens, in the middle of a transaction of his own."""
    url = server.url("elsewhere")
    with (
        psycopg.connect(url, autocommit=True) as stuck,
        psycopg.connect(url, autocommit=True) as other,
    ):
        stuck.execute("listen anything")
        stuck.execute("begin")
        stuck.execute("select 1")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            _tell_too_much(other)
        yield


def _tell_too_much(connection: psycopg.Connection) -> None:
    for number in range(200):
        connection.execute("select pg_notify('anything', repeat('x', 7900) || %s)", (number,))


async def test_first_to_meet_the_full_queue_is_told_of_no_error(server: Server) -> None:
    url = server.url("tenure")
    await migrated(url)
    with full_queue(server):
        for prepared in ("yes", "no"):
            for new in (
                [new_run()],
                [new_run(), new_run()],
                [new_run(), embedded_run("owner-a")],
            ):
                async with PostgresStore(f"{url}?prepared={prepared}") as store:
                    receipts = await store.update_runs(new)
                    assert [type(each) for each in receipts] == [Receipt] * len(new)
                    for each in new:
                        assert (await store.get_run(each.snapshot.run_id)).version == 1


async def test_who_tells_with_every_run_is_told_what_it_is_that_fails(server: Server) -> None:
    """Not that something were wrong with the run."""
    url = server.url("tenure")
    await migrated(url)
    server.execute(
        "create function telling() returns trigger language plpgsql as "
        "$$ begin notify anything; return null; end $$; "
        "create trigger telling after insert on tenure.runs execute function telling()",
        "tenure",
    )
    async with PostgresStore(url) as store:
        with full_queue(server), pytest.raises(StoreUnavailable, match=r"queue of .* is full"):
            await store.create_run(new_run())
        assert (await store.list_runs()).items == ()


async def test_full_queue_costs_hints_and_no_run(server: Server) -> None:
    url = server.url("tenure")
    await migrated(url)
    async with (
        PostgresStore(url) as store,
        PostgresStore(f"{url}?prepared=yes") as other,
        asyncio.timeout(2 * PATIENCE),
    ):
        with full_queue(server):
            for _ in range(2):
                for each in (store, other):
                    await create(each)
                    await write(each, cancel(await create_embedded(each)))
                await asyncio.sleep(A_WHILE)
            assert store._announcing.aboard([QUEUE]) == [], "it would be refused, and sent again"
            with pytest.raises(StoreUnavailable, match=r"queue of notifications .* is full"):
                await store.hears_hints()
        async with listening(other, QUEUE) as heard:
            while not heard.is_set():
                await create(store)
                await asyncio.sleep(A_WHILE)
        while not store._announcing.aboard([QUEUE]):
            await asyncio.sleep(A_WHILE)
        assert await store.hears_hints()
