"""Who cancels a call hears of nothing else, whatever the driver meets on its way out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from tenure.model.errors import StoreUnavailable
from tenure.model.leases import ClaimRequest
from tenure.stores.postgres import PostgresStore
from tenure.testing.factories import new_run
from tests.postgres.database import TestDatabase
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

PATIENCE = 20.0
AT_ONCE = 4.0
"""Seconds: less than a driver takes that waits for the server to stop."""
CLAIM = ClaimRequest(owner_id="me", seconds=60, claim_id="one", limit=5, queues=("default",))


@pytest.fixture
def frozen(postgres_server: Server) -> Iterator[Server]:
    yield postgres_server
    postgres_server.thaw()


@pytest.mark.parametrize("what", ["claim", "batch", "list"])
async def test_a_call_that_is_cancelled_is_cancelled(
    postgres_database: TestDatabase, frozen: Server, what: str
) -> None:
    """And at once, whether or not the server says anything."""
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "claim": lambda: store.claim_runs(CLAIM),
        "batch": lambda: store.update_runs([new_run()]),
        "list": lambda: store.list_runs(),
    }
    async with PostgresStore(postgres_database.url) as store:
        await store.update_runs([new_run(), new_run()])
        await calls[what]()  # the connection is there
        frozen.freeze()
        calling = asyncio.ensure_future(calls[what]())
        await asyncio.wait([calling], timeout=0.2)
        calling.cancel()  # once: nobody asks again
        await asyncio.wait([calling], timeout=AT_ONCE)
        assert calling.cancelled()
        frozen.thaw()
        await store.create_run(new_run())


async def test_who_tidies_up_after_a_cancellation_is_told_what_is_wrong(
    postgres_database: TestDatabase, frozen: Server
) -> None:
    async with PostgresStore(f"{postgres_database.url}?statement_timeout=0.2") as store:
        await store.update_runs([new_run()])

        async def tidies_up() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await store.update_runs([new_run()])

        tidying = asyncio.create_task(tidies_up())
        await asyncio.sleep(0)
        frozen.freeze()
        tidying.cancel()
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.2 s"):
            await asyncio.wait_for(tidying, PATIENCE)
