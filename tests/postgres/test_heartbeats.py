"""Who is there, told by many processes at once: none of them waits for another's row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from tenure.model.errors import StoreUnavailable
from tenure.ports.leases import WorkerInfo
from tenure.stores.postgres import PostgresStore
from tests.postgres.database import migrated
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

WORKERS = [WorkerInfo(owner_id=f"worker-{number}") for number in range(6)]
OUTAGE = "update tenure.workers set seen_until = now() - interval '1 second'"
HELD = "select 1 from tenure.workers where owner_id = %s for update"


@pytest.fixture
async def url(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists heartbeats with (force)")
    postgres_server.execute("create database heartbeats")
    url = postgres_server.url("heartbeats", statement_timeout="5")
    await migrated(url)
    return url


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[PostgresStore]]:
    """One for each worker, as if in a process of its own; all have been seen."""
    opened = [PostgresStore(url) for _ in WORKERS]
    for store, worker in zip(opened, WORKERS, strict=True):
        await store.heartbeat(worker, 60.0)
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
def plain_url(postgres_server: Server) -> str:
    return postgres_server.url("heartbeats")


async def test_workers_that_come_back_together_do_not_stop_each_other(
    plain_url: str, stores: list[PostgresStore]
) -> None:
    """After an outage each is taken for gone by all the others, who would forget it."""
    with psycopg.connect(plain_url, autocommit=True) as somebody:
        for _ in range(10):
            somebody.execute(OUTAGE)
            async with asyncio.TaskGroup() as group:
                for store, worker in zip(stores, WORKERS, strict=True):
                    group.create_task(store.heartbeat(worker, 60.0))
            present = await stores[0].list_workers()
            assert [each.owner_id for each in present] == [each.owner_id for each in WORKERS]


async def test_worker_whose_own_row_is_held_is_told_so(
    plain_url: str, stores: list[PostgresStore]
) -> None:
    """Renewals wait behind a heartbeat: it must not wait for a person."""
    with psycopg.connect(plain_url) as somebody:
        somebody.execute(HELD, (WORKERS[0].owner_id,))
        with pytest.raises(StoreUnavailable, match="worker-0 is locked"):
            await stores[0].heartbeat(WORKERS[0], 60.0)
    await stores[0].heartbeat(WORKERS[0], 60.0)


def _known(onlooker: psycopg.Connection) -> list[str]:
    rows = onlooker.execute("select owner_id from tenure.workers order by owner_id").fetchall()
    return [owner_id for (owner_id,) in rows]
