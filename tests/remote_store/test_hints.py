"""Workers behind a gateway are told as soon as those at the store itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tenure.client import HttpStore
from tenure.client.transport import HttpTransport, encoded
from tenure.model.query import topic_of_queue
from tenure.stores.memory import InMemoryStore
from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.contracts import ContractHarness, WakeupsContract
from tenure.testing.contracts.acts import claim, create, lease_of
from tenure.testing.factories import LONG, cancel
from tenure.wire.leases import HeldLease, Renewals, RenewalsRequest, Wakeup, WakeupRequest
from tests.postgres.database import TestDatabase
from tests.remote_store.front import gateway

pytestmark = pytest.mark.slow

SOON = 15.0
"""Seconds; less than an answer is held back, or nothing would be shown."""


class TestWakeups(WakeupsContract, ContractHarness):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Any]:
        async with gateway(InMemoryStore()) as address, HttpStore(address) as store:
            yield store


class TestWakeupsOfPostgres(WakeupsContract, ContractHarness):
    @pytest.fixture
    async def store(self, postgres_going: TestDatabase) -> AsyncIterator[Any]:
        postgres_going.empty()
        async with (
            PostgresStore(postgres_going.url) as kept,
            gateway(kept) as address,
            HttpStore(address) as store,
        ):
            yield store


async def test_what_happens_between_two_questions_is_told() -> None:
    kept = InMemoryStore()
    async with gateway(kept) as address:
        line = HttpTransport(address)

        async def ask(after: str | None) -> str:
            body = encoded(WakeupRequest(topics=(topic_of_queue("default"),), after=after))
            async with asyncio.timeout(SOON):
                return (await line.ask("POST", "/v1/wakeups", Wakeup, body=body, wait=SOON)).after

        begun = await ask(None)
        await create(kept)
        assert await ask(begun) != begun
        await line.close()


async def test_who_listens_hears_when_the_gateway_is_there_again() -> None:
    """What happened meanwhile may have been missed."""
    kept = InMemoryStore()
    async with gateway(kept) as address:
        port = urlsplit(address).port or 0
    store, heard = HttpStore(address), asyncio.Event()
    async with store.listen([topic_of_queue("default")], heard.set):
        assert not heard.is_set()
        async with gateway(kept, port), asyncio.timeout(SOON):
            await heard.wait()
            heard.clear()
            await create(kept)
            await heard.wait()
    await store.close()


async def test_a_store_that_wakes_nobody_is_no_trouble(tmp_path: Path) -> None:
    kept = await SQLiteStore.open(tmp_path / "runs.db")
    async with (
        gateway(kept) as address,
        HttpStore(address) as store,
        store.listen([topic_of_queue("default")], lambda: None),
    ):
        assert not (await store.list_runs()).items
    await kept.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_renewal_that_waits_is_answered_by_a_cancel_request(
    kind: str, tmp_path: Path
) -> None:
    kept: Any = InMemoryStore()
    if kind == "sqlite":
        kept = await SQLiteStore.open(tmp_path / "runs.db")
    async with gateway(kept) as address, HttpStore(address) as store:
        run = await claim(store, (await create(store)).run_id)
        waiting = asyncio.create_task(renewed(address, HeldLease(**owned(run))))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done, "there was nothing to tell"
        await store.update_run(cancel(run))
        async with asyncio.timeout(SOON):
            (renewal,) = (await waiting).renewals
    assert renewal.ok
    assert renewal.cancel_requested_at is not None
    if kind == "sqlite":
        await kept.close()


async def test_a_gateway_that_ends_keeps_nobody_waiting() -> None:
    kept = InMemoryStore()
    async with gateway(kept) as address, HttpStore(address) as store:
        run = await claim(store, (await create(store)).run_id)
        waiting = asyncio.create_task(renewed(address, HeldLease(**owned(run))))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
    async with asyncio.timeout(SOON):
        (renewal,) = (await waiting).renewals
    assert renewal.ok


def owned(run: Any) -> dict[str, Any]:
    lease = lease_of(run)
    return {"run_id": lease.run_id, "owner_id": lease.owner_id, "fence": lease.fence}


async def renewed(address: str, held: HeldLease) -> Renewals:
    line, body = (
        HttpTransport(address),
        encoded(RenewalsRequest(leases=(held,), lease_seconds=LONG)),
    )
    try:
        query = [("wait", "20")]
        return await line.ask("POST", "/v1/renewals", Renewals, query=query, body=body, wait=20)
    finally:
        await line.close()
