"""SQLite keeps every contract, and keeps it over a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BatchUpdatesContract,
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
    MachineClockContract,
    ManualTime,
    OneRetryContract,
    OutboxBatchesContract,
    OutboxContract,
    OutboxMachineClockContract,
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
    WorkerRegistryContract,
)
from tenure.testing.contracts.harness import OpenStore
from tests.stores.sqlite_files import SQLiteFiles

pytestmark = pytest.mark.slow


class SQLite(FaultSweep, ManualTime):
    max_swept_calls = 4

    @pytest.fixture
    def open_store(self, clock: ManualClock, sqlite_files: SQLiteFiles) -> OpenStore:
        return lambda: sqlite_files.opened(clock)


class TestRuns(SQLite, RunStateStoreContract): ...


class TestBatches(SQLite, BatchUpdatesContract): ...


class TestLeases(SQLite, LeaseStoreContract): ...


class TestKeptApart(SQLite, KeptApartContract): ...


class TestMachineClock(SQLite, MachineClockContract): ...


class TestEvents(SQLite, EventLogContract): ...


class TestVersions(SQLite, RunVersionsContract): ...


class TestCensus(SQLite, CensusContract): ...


class TestChangeFeed(SQLite, ChangeFeedContract): ...


class TestOwnershipEvents(SQLite, OwnershipEventsContract): ...


class TestDefinitions(SQLite, DefinitionsContract): ...


class TestOneRetry(SQLite, OneRetryContract): ...


class TestOutbox(SQLite, OutboxContract): ...


class TestOutboxBatches(SQLite, OutboxBatchesContract): ...


class TestOutboxMachineClock(SQLite, OutboxMachineClockContract): ...


class TestLogs(SQLite, LogStoreContract): ...


class TestWorkers(SQLite, WorkerRegistryContract): ...


class TestOwnerListing(SQLite, OwnerListingContract): ...


class TestStoreClock(SQLite, StoreClockContract): ...


class TestTokens(SQLite, TokenStoreContract): ...


class TestLogListing(SQLite, LogListingContract): ...


class TestLogSizes(SQLite, LogSizesContract): ...


class TestRetention(SQLite, RetentionContract): ...


class TestRetentionCounts(SQLite, RetentionCountsContract): ...


class TestRetentionOfCallbacks(SQLite, OutboxRetentionContract): ...


class TestRetentionOfOutput(SQLite, OutputRetentionContract): ...


class TestUpkeep(SQLite, UpkeepContract): ...


class Twice(SQLite):
    @pytest.fixture
    async def reopened(self, store: SQLiteStore, clock: ManualClock) -> AsyncIterator[SQLiteStore]:
        async with await SQLiteStore.open(store.path, clock=clock) as second:
            yield second


class TestDurability(Twice, DurabilityContract): ...


class TestShared(Twice, SharedStoreContract): ...


class TestSharedLeases(Twice, SharedLeasesContract): ...
