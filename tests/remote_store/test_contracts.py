"""SQLite behind a live gateway keeps the contracts that it keeps by itself. If a call of the
gateway to its store fails, that comes out as ``StoreUnavailable``, and the same request sent again
is answered as the first time (``TestBatches``). PostgreSQL shows that the gateway does not mind
which store it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tenure.stores.postgres import PostgresStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BatchUpdatesContract,
    DefinitionsContract,
    EventLogContract,
    FaultSweep,
    LeaseStoreContract,
    LogListingContract,
    LogStoreContract,
    ManualTime,
    OneRetryContract,
    OwnershipEventsContract,
    RunStateStoreContract,
    WorkerRegistryContract,
)
from tenure.testing.faults import FaultAt, OneFaultStore, RetryingStore
from tests.postgres.database import ServersClock, TestDatabase
from tests.remote_store.front import SharedGateway
from tests.stores.sqlite_files import SQLiteFiles

pytestmark = pytest.mark.slow

OpenBehind = Callable[[FaultAt], AbstractAsyncContextManager[Any]]


class SQLiteBehind(FaultSweep, ManualTime):
    max_swept_calls = 0

    @pytest_asyncio.fixture(loop_scope="session")
    async def open_store(
        self, shared_gateway: SharedGateway, clock: ManualClock, sqlite_files: SQLiteFiles
    ) -> OpenBehind:
        @asynccontextmanager
        async def behind(at: FaultAt) -> AsyncIterator[Any]:
            async with sqlite_files.opened(clock) as store:
                yield OneFaultStore(store, at)

        return lambda at: shared_gateway.before(partial(behind, at))

    @asynccontextmanager
    async def open_with(self, open_store: OpenBehind, at: FaultAt) -> AsyncIterator[Any]:
        async with open_store(at) as store:
            yield RetryingStore(store)


class TestRuns(SQLiteBehind, RunStateStoreContract): ...


class TestBatches(SQLiteBehind, BatchUpdatesContract):
    max_swept_calls = 3


class TestLeases(SQLiteBehind, LeaseStoreContract): ...


class TestEvents(SQLiteBehind, EventLogContract): ...


class TestOwnershipEvents(SQLiteBehind, OwnershipEventsContract): ...


class TestDefinitions(SQLiteBehind, DefinitionsContract): ...


class TestOneRetry(SQLiteBehind, OneRetryContract): ...


class TestLogs(SQLiteBehind, LogStoreContract): ...


class TestLogListing(SQLiteBehind, LogListingContract): ...


class TestWorkers(SQLiteBehind, WorkerRegistryContract): ...


class PostgresBehind(ManualTime):
    @pytest.fixture
    def clock(self, postgres_database: TestDatabase) -> ManualClock:
        self._manual = ServersClock(postgres_database)
        return self._manual

    @pytest_asyncio.fixture(loop_scope="session")
    async def store(
        self, shared_gateway: SharedGateway, clock: ManualClock, postgres_database: TestDatabase
    ) -> AsyncIterator[Any]:
        url = f"{postgres_database.url}?prepared=yes"
        async with shared_gateway.before(lambda: PostgresStore(url, clock)) as store:
            yield store


class TestPostgresBatches(PostgresBehind, BatchUpdatesContract): ...


class TestPostgresOwnershipEvents(PostgresBehind, OwnershipEventsContract): ...
