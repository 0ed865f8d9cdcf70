"""The contracts hold on a bad day: what goes wrong behind the gateway, or on the way to it, comes
out as ``StoreUnavailable``, and whoever sends the same again is answered as the first time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from zlib import crc32

import pytest
import pytest_asyncio

from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BatchUpdatesContract,
    DefinitionsContract,
    EventLogContract,
    LeaseStoreContract,
    LogStoreContract,
    ManualTime,
    RunStateStoreContract,
)
from tenure.testing.faults import FaultyStore, RetryingStore
from tests.postgres.database import ServersClock, TestDatabase
from tests.postgres.warm import warm_store
from tests.remote_store.front import OpenStore, SharedGateway
from tests.stores.sqlite_files import SQLiteFiles

pytestmark = pytest.mark.slow


@asynccontextmanager
async def on_a_bad_day(opened: OpenStore, seed: int, rate: float) -> AsyncIterator[Any]:
    async with opened() as store:
        yield FaultyStore(store, seed=seed, rate=rate)


def seed_of(request: pytest.FixtureRequest) -> int:
    """Every test meets faults of its own, and the same ones each time."""
    return crc32(request.node.nodeid.encode())


class BehindIt(ManualTime):
    """One call in ten of the gateway to its store."""

    @pytest_asyncio.fixture(loop_scope="session")
    async def store(
        self,
        shared_gateway: SharedGateway,
        clock: ManualClock,
        sqlite_files: SQLiteFiles,
        request: pytest.FixtureRequest,
    ) -> AsyncIterator[Any]:
        seed = seed_of(request)
        opened = partial(on_a_bad_day, partial(sqlite_files.opened, clock), seed, 0.10)
        async with shared_gateway.before(opened) as store:
            yield RetryingStore(store)


class TestRuns(BehindIt, RunStateStoreContract): ...


class TestBatches(BehindIt, BatchUpdatesContract): ...


class TestLeases(BehindIt, LeaseStoreContract): ...


class TestEvents(BehindIt, EventLogContract): ...


class TestDefinitions(BehindIt, DefinitionsContract): ...


class TestLogs(BehindIt, LogStoreContract): ...


class BeforeIt(ManualTime):
    """One call in a hundred of the client to its gateway; PostgreSQL behind it."""

    @pytest.fixture
    def clock(self, postgres_database: TestDatabase) -> ManualClock:
        self._manual = ServersClock(postgres_database)
        return self._manual

    @pytest_asyncio.fixture(loop_scope="session")
    async def store(
        self,
        shared_gateway: SharedGateway,
        clock: ManualClock,
        postgres_database: TestDatabase,
        request: pytest.FixtureRequest,
    ) -> AsyncIterator[Any]:
        url = f"{postgres_database.url}?prepared=yes"
        async with shared_gateway.before(lambda: warm_store(url, clock)) as store:
            yield RetryingStore(FaultyStore(store, seed=seed_of(request), rate=0.01))


class TestPostgresBatches(BeforeIt, BatchUpdatesContract): ...


class TestPostgresRuns(BeforeIt, RunStateStoreContract): ...


class TestPostgresLeases(BeforeIt, LeaseStoreContract): ...


class TestPostgresLogs(BeforeIt, LogStoreContract): ...


class TestPostgresEvents(BeforeIt, EventLogContract): ...


class TestPostgresDefinitions(BeforeIt, DefinitionsContract): ...
