"""A claim whose answer was lost is sent again, while a person holds one of its runs."""

from __future__ import annotations

import psycopg
import pytest

from tenure.model.errors import StoreUnavailable
from tenure.model.leases import ClaimedRun
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create
from tenure.testing.factories import claim_request
from tests.postgres.database import migrated
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

HOLD = "select 1 from tenure.runs where run_id = %s for update"


async def test_run_that_somebody_holds_is_neither_waited_for_nor_left_out(
    postgres_server: Server,
) -> None:
    """The rest alone would look like all of them, and nobody would ask for the last again."""
    postgres_server.execute("drop database if exists sent_again with (force)")
    postgres_server.execute("create database sent_again")
    url = postgres_server.url("sent_again")
    await migrated(url)
    async with PostgresStore(f"{url}?statement_timeout=5") as store:
        for _ in range(3):
            await create(store)
        request = claim_request("worker-1", limit=2)
        first = await store.claim_runs(request)
        held = first[0].lease.run_id
        with psycopg.connect(url) as somebody:
            somebody.execute(HOLD, (held,))
            with pytest.raises(StoreUnavailable, match=r"is locked .* send it again"):
                await store.claim_runs(request)
            others = await store.claim_runs(claim_request("worker-2", limit=5))
            assert len(others) == 1, "what it did not get, it must not keep from others"
        again = await store.claim_runs(request)
        assert [_right(one) for one in again] == [_right(one) for one in first]


def _right(claimed: ClaimedRun) -> tuple[str, str, int]:
    lease = claimed.lease
    return lease.run_id, lease.owner_id, lease.fence
