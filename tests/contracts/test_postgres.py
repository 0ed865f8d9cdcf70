"""PostgreSQL keeps every contract, and keeps it over a restart of its users."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenure.stores.postgres import PostgresStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BatchUpdatesContract,
    BeginningsContract,
    CensusContract,
    ChangeFeedContract,
    DefinitionsContract,
    DurabilityContract,
    EventLogContract,
    KeptApartContract,
    LastRecordsContract,
    LeaseStoreContract,
    LogListingContract,
    LogSizesContract,
    LogStoreContract,
    ManualTime,
    OutboxBatchesContract,
    OutboxContract,
    OutboxRetentionContract,
    OutputRetentionContract,
    OwnerListingContract,
    OwnershipEventsContract,
    RetentionContract,
    RetentionCountsContract,
    RunStateStoreContract,
    RunVersionsContract,
    SharedLeasesContract,
    SharedStoreContract,
    StoreClockContract,
    TokenStoreContract,
    UpkeepContract,
    WakeupsContract,
    WorkerRegistryContract,
)
from tests.postgres.database import ServersClock, TestDatabase
from tests.postgres.warm import warm_store

pytestmark = pytest.mark.slow


class Postgres(ManualTime):
    @pytest.fixture
    def clock(self, postgres_database: TestDatabase) -> ManualClock:
        self._manual = ServersClock(postgres_database)
        return self._manual

    @pytest.fixture
    async def store(
        self, clock: ManualClock, postgres_database: TestDatabase
    ) -> AsyncIterator[PostgresStore]:
        async with warm_store(postgres_database.url, clock) as store:
            yield store


class TestRuns(Postgres, RunStateStoreContract): ...


class TestBatches(Postgres, BatchUpdatesContract): ...


class TestLeases(Postgres, LeaseStoreContract): ...


class TestKeptApart(Postgres, KeptApartContract): ...


class TestBeginnings(Postgres, BeginningsContract): ...


class TestEvents(Postgres, EventLogContract): ...


class TestOwnershipEvents(Postgres, OwnershipEventsContract): ...


class TestDefinitions(Postgres, DefinitionsContract): ...


class TestOutbox(Postgres, OutboxContract): ...


class TestOutboxBatches(Postgres, OutboxBatchesContract): ...


class TestLogs(Postgres, LogStoreContract): ...


class TestWorkers(Postgres, WorkerRegistryContract): ...


class TestOwnerListing(Postgres, OwnerListingContract): ...


class TestStoreClock(Postgres, StoreClockContract): ...


class TestTokens(Postgres, TokenStoreContract): ...


class TestLogListing(Postgres, LogListingContract): ...


class TestLogSizes(Postgres, LogSizesContract): ...


class TestRetention(Postgres, RetentionContract): ...


class TestRetentionCounts(Postgres, RetentionCountsContract): ...


class TestRetentionOfCallbacks(Postgres, OutboxRetentionContract): ...


class TestRetentionOfOutput(Postgres, OutputRetentionContract): ...


class TestVersions(Postgres, RunVersionsContract): ...


class TestLastRecords(Postgres, LastRecordsContract): ...


class TestCensus(Postgres, CensusContract): ...


class TestChangeFeed(Postgres, ChangeFeedContract): ...


class TestWakeups(Postgres, WakeupsContract): ...


class TestUpkeep(Postgres, UpkeepContract): ...


class Twice(Postgres):
    @pytest.fixture
    async def reopened(
        self, store: PostgresStore, clock: ManualClock, postgres_database: TestDatabase
    ) -> AsyncIterator[PostgresStore]:
        async with warm_store(postgres_database.url, clock) as second:
            yield second


class TestDurability(Twice, DurabilityContract): ...


class TestShared(Twice, SharedStoreContract): ...


class TestSharedLeases(Twice, SharedLeasesContract): ...
