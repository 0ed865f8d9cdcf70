"""A server that freezes between the two trips of one claim.

What had ended by the first trip had ended while the server was there to renew it, and from then on
its row is locked: whoever wants to renew is not told that it was. So there is nothing to be careful
about in the second trip, however late that comes, and there are never two who believe in the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure.model.leases import LATE
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create
from tenure.testing.factories import claim_request, lease_request
from tests.postgres.database import TestDatabase
from tests.postgres.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.long]

BRIEF = 0.2


@pytest.fixture
async def store(postgres_going: TestDatabase) -> AsyncIterator[PostgresStore]:
    postgres_going.empty()
    async with PostgresStore(postgres_going.url) as opened:
        yield opened


async def test_the_run_is_taken_and_its_owner_is_never_told_that_it_was_renewed(
    store: PostgresStore, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await create(store)
    lease = (await store.claim_run(run.run_id, lease_request("owner-a", seconds=BRIEF))).lease
    await asyncio.sleep(2 * BRIEF)
    second_trip, renewals = store._write_and_read, []

    async def freeze_before(*args: Any) -> Any:
        postgres_server.freeze()
        try:
            renewals.append(asyncio.create_task(store.renew_leases([lease], 60)))
            await asyncio.sleep(LATE + 0.3)
        finally:
            postgres_server.thaw()
        await asyncio.wait(renewals)  # it is answered first
        return await second_trip(*args)

    monkeypatch.setattr(store, "_write_and_read", freeze_before)
    (taken,) = await store.claim_runs(claim_request("owner-b", seconds=60, limit=5))
    assert (taken.snapshot.owner_id, taken.snapshot.takeovers) == ("owner-b", 1)
    ((renewal,),) = await asyncio.gather(*renewals)
    assert renewal.busy
    (renewal,) = await store.renew_leases([lease], 60)
    assert not renewal.ok
