"""A claim that comes late picks once more, without the expired leases that were in the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.model.leases import LATE
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create
from tenure.testing.factories import claim_request, lease_request
from tests.postgres.database import TestDatabase
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

BRIEF = 0.2


async def test_owners_may_renew_what_was_picked_first(
    postgres_going: TestDatabase, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for them that it was left alone."""
    postgres_going.empty()
    async with (
        PostgresStore(postgres_going.url) as owners,
        Proxy(postgres_server.port) as proxy,
        PostgresStore(postgres_going.url_through(proxy.port)) as claimers,
    ):
        run, behind = await create(owners), await create(owners)
        lease = (await owners.claim_run(run.run_id, lease_request("owner-a", seconds=BRIEF))).lease
        await claimers.list_runs(limit=1)
        await asyncio.sleep(2 * BRIEF)
        last_trip, renewals = claimers._leasing._write_and_read, []

        async def renewed_before(*args: Any) -> Any:
            renewals.extend(await owners.renew_leases([lease], 60))
            return await last_trip(*args)

        monkeypatch.setattr(claimers._leasing, "_write_and_read", renewed_before)
        proxy.answer_late(LATE + 0.3)
        (taken,) = await claimers.claim_runs(claim_request("owner-b", seconds=6 * LATE))
        assert taken.snapshot.run_id == behind.run_id
        assert [(each.ok, each.busy) for each in renewals] == [(True, False)]
