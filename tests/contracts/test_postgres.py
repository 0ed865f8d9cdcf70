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
    FaultSweep,
    KeptApartContract,
    LeaseStoreContract,
    LogListingContract,
    LogSizesContract,
    LogStoreContract,
    ManualTime,
    OneRetryContract,
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
from tenure.testing.contracts.harness import OpenStore
from tests.postgres.database import ServersClock, TestDatabase

pytestmark = pytest.mark.slow


def emptied(database: TestDatabase, url: str, clock: ManualClock) -> PostgresStore:
    database.empty()
    return PostgresStore(url, clock)


class Postgres(FaultSweep, ManualTime):
    max_swept_calls = 0

    @pytest.fixture
    def clock(self, postgres_database: TestDatabase) -> ManualClock:
        self._manual = ServersClock(postgres_database)
        return self._manual

    @pytest.fixture
    def open_store(self, clock: ManualClock, postgres_database: TestDatabase) -> OpenStore:
        return lambda: emptied(postgres_database, postgres_database.url, clock)


class Swept(Postgres):
    """What is a statement of its own in this database, also when it is sent again."""

    max_swept_calls = 1


class TestRuns(Swept, RunStateStoreContract): ...


class TestBatches(Swept, BatchUpdatesContract): ...


class TestLeases(Postgres, LeaseStoreContract): ...


class TestKeptApart(Postgres, KeptApartContract): ...


class TestBeginnings(Swept, BeginningsContract): ...


class TestEvents(Postgres, EventLogContract): ...


class TestOwnershipEvents(Postgres, OwnershipEventsContract): ...


class TestDefinitions(Postgres, DefinitionsContract): ...


class TestOneRetry(Postgres, OneRetryContract): ...


class TestOutbox(Postgres, OutboxContract): ...


class TestOutboxBatches(Swept, OutboxBatchesContract): ...


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


class TestCensus(Postgres, CensusContract): ...


class TestChangeFeed(Postgres, ChangeFeedContract): ...


class TestWakeups(Postgres, WakeupsContract): ...


class TestUpkeep(Postgres, UpkeepContract): ...


class Twice(Postgres):
    @pytest.fixture
    async def reopened(
        self, store: PostgresStore, clock: ManualClock, postgres_database: TestDatabase
    ) -> AsyncIterator[PostgresStore]:
        async with PostgresStore(postgres_database.url, clock) as second:
            yield second


class TestDurability(Twice, DurabilityContract): ...


class TestShared(Twice, SharedStoreContract): ...


class TestSharedLeases(Twice, SharedLeasesContract): ...
