"""A store behind a live gateway keeps the contracts that it keeps by itself: SQLite all that go
through a gateway, PostgreSQL those that it decides in statements of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BatchUpdatesContract,
    DefinitionsContract,
    EventLogContract,
    LeaseStoreContract,
    LogListingContract,
    LogStoreContract,
    ManualTime,
    OneRetryContract,
    OwnershipEventsContract,
    RunStateStoreContract,
    WorkerRegistryContract,
)
from tests.postgres.database import ServersClock, TestDatabase
from tests.postgres.warm import warm_store
from tests.remote_store.front import SharedGateway
from tests.stores.sqlite_files import SQLiteFiles

pytestmark = pytest.mark.slow


class SQLiteBehind(ManualTime):
    @pytest_asyncio.fixture(loop_scope="session")
    async def store(
        self, shared_gateway: SharedGateway, clock: ManualClock, sqlite_files: SQLiteFiles
    ) -> AsyncIterator[Any]:
        async with shared_gateway.before(lambda: sqlite_files.opened(clock)) as store:
            yield store


class TestRuns(SQLiteBehind, RunStateStoreContract): ...


class TestBatches(SQLiteBehind, BatchUpdatesContract): ...


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
        async with shared_gateway.before(lambda: warm_store(url, clock)) as store:
            yield store


class TestPostgresRuns(PostgresBehind, RunStateStoreContract): ...


class TestPostgresEvents(PostgresBehind, EventLogContract): ...


class TestPostgresBatches(PostgresBehind, BatchUpdatesContract): ...


class TestPostgresLeases(PostgresBehind, LeaseStoreContract): ...


class TestPostgresLogs(PostgresBehind, LogStoreContract): ...


class TestPostgresDefinitions(PostgresBehind, DefinitionsContract): ...


class TestPostgresOwnershipEvents(PostgresBehind, OwnershipEventsContract): ...
