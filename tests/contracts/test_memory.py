"""The memory store is a real store: it keeps every contract."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BatchUpdatesContract,
    BeginningsContract,
    CensusContract,
    ChangeFeedContract,
    DefinitionsContract,
    EventLogContract,
    FaultSweep,
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
    StoreClockContract,
    TokenStoreContract,
    WakeupsContract,
    WorkerRegistryContract,
)
from tenure.testing.contracts.harness import OpenStore


class Memory(FaultSweep, ManualTime):
    @pytest.fixture
    def open_store(self, clock: ManualClock) -> OpenStore:
        return lambda: nullcontext(InMemoryStore(clock))


class TestRuns(Memory, RunStateStoreContract): ...


class TestBatches(Memory, BatchUpdatesContract): ...


class TestLeases(Memory, LeaseStoreContract): ...


class TestBeginnings(Memory, BeginningsContract): ...


class TestMachineClock(Memory, MachineClockContract): ...


class TestEvents(Memory, EventLogContract): ...


class TestOwnershipEvents(Memory, OwnershipEventsContract): ...


class TestDefinitions(Memory, DefinitionsContract): ...


class TestOneRetry(Memory, OneRetryContract): ...


class TestOutbox(Memory, OutboxContract): ...


class TestOutboxBatches(Memory, OutboxBatchesContract): ...


class TestOutboxMachineClock(Memory, OutboxMachineClockContract): ...


class TestLogs(Memory, LogStoreContract): ...


class TestWorkers(Memory, WorkerRegistryContract): ...


class TestOwnerListing(Memory, OwnerListingContract): ...


class TestStoreClock(Memory, StoreClockContract): ...


class TestVersions(Memory, RunVersionsContract): ...


class TestCensus(Memory, CensusContract): ...


class TestTokens(Memory, TokenStoreContract): ...


class TestChangeFeed(Memory, ChangeFeedContract): ...


class TestWakeups(Memory, WakeupsContract): ...


class TestLogListing(Memory, LogListingContract): ...


class TestLogSizes(Memory, LogSizesContract): ...


class TestRetention(Memory, RetentionContract): ...


class TestRetentionCounts(Memory, RetentionCountsContract): ...


class TestRetentionOfCallbacks(Memory, OutboxRetentionContract): ...


class TestRetentionOfOutput(Memory, OutputRetentionContract): ...
