"""Who cancels a call hears of nothing else, whatever the driver meets on its way out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tenure.cancelling import end
from tenure.model.errors import StoreUnavailable
from tenure.model.leasing import ClaimRequest
from tenure.stores.postgres import PostgresStore
from tenure.testing.factories import new_run
from tests.postgres.database import TestDatabase
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

PATIENCE = 20.0
CLAIM = ClaimRequest(owner_id="me", seconds=60, claim_id="one", limit=5, queues=("default",))


@pytest.fixture
def frozen(postgres_server: Server) -> Iterator[Server]:
    yield postgres_server
    postgres_server.thaw()


@pytest.mark.parametrize("what", ["claim", "batch"])
async def test_a_call_that_is_cancelled_is_cancelled(
    postgres_database: TestDatabase, frozen: Server, what: str
) -> None:
    async with PostgresStore(postgres_database.url) as store:
        await store.update_runs([new_run(), new_run()])
        await store.claim_runs(CLAIM)  # the connection for writing is there
        frozen.freeze()
        asked = store.claim_runs(CLAIM) if what == "claim" else store.update_runs([new_run()])
        calling = asyncio.ensure_future(asked)
        await asyncio.wait([calling], timeout=0.2)
        async with asyncio.timeout(PATIENCE):
            await end(calling)
        assert calling.cancelled(), calling.exception()
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
