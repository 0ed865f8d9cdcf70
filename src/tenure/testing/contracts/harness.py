"""What every contract class stands on: how a store is had, and how time passes for it."""

from __future__ import annotations

import asyncio
from typing import Protocol

import pytest

from tenure.ports.callbacks import Outbox, OutboxBatches
from tenure.ports.leases import KeptApart, LeaseStore, OwnerListing, Wakeups
from tenure.ports.store import (
    BatchUpdates,
    Beginnings,
    CensusTaking,
    ChangeFeed,
    Definitions,
    EventLog,
    LogListing,
    LogSizes,
    LogStore,
    Retention,
    RunStateStore,
    RunVersions,
    StoreClock,
    Upkeep,
)
from tenure.testing.clock import ManualClock

SUITE_VERSION = "1.0"
"""Rises in its first part when a store that passed may fail, in its second when tests are added."""


class ContractHarness:
    """Base of every contract. In a hurry: define a fixture ``store`` and nothing else.

    ``store``: a fresh, empty store for each test.

    Time. Some tests let leases expire. By default they really wait, a little longer than
    ``lease_seconds`` each; raise it for a store so slow that a lease of one second could run out
    while the test is still at work. If your store takes a clock, put ``ManualTime`` in front of
    the contract and build the store with the fixture ``clock``: nothing waits any more.
    """

    pytestmark = pytest.mark.asyncio

    lease_seconds: float = 1.0
    """The duration of leases that a test means to outlive."""

    swept: bool = True
    """Whether its clauses hold for a client that sends failed calls again (``FaultSweep``)."""

    async def pass_time(self, seconds: float) -> None:
        """Let ``seconds`` go by for the store."""
        await asyncio.sleep(seconds)

    async def expire_leases(self) -> None:
        """Outlive every lease of ``lease_seconds``, given at any moment until now."""
        await self.pass_time(self.lease_seconds * 1.1)


class ManualTime(ContractHarness):
    """For stores that take a clock: time passes by moving it."""

    lease_seconds = 30.0
    _manual: ManualClock

    @pytest.fixture
    def clock(self) -> ManualClock:
        self._manual = ManualClock()
        return self._manual

    async def pass_time(self, seconds: float) -> None:
        self._manual.advance(seconds)


class BatchingStore(RunStateStore, BatchUpdates, Protocol):
    """What the batch contract needs."""


class WakingStore(RunStateStore, LeaseStore, Wakeups, Protocol):
    """What the contract of wake-ups needs."""


class FeedingStore(RunStateStore, EventLog, ChangeFeed, Protocol):
    """What the contract of the change feed needs."""


class CountingStore(RunStateStore, LeaseStore, CensusTaking, Protocol):
    """What the contract of the census needs."""


class VersionedStore(RunStateStore, LeaseStore, RunVersions, Protocol):
    """What the contract of versions needs."""


class LeasingStore(RunStateStore, LeaseStore, Protocol):
    """What the lease contract needs."""


class ApartKeptStore(RunStateStore, LeaseStore, KeptApart, Protocol):
    """What the contract about keeping leases apart needs."""


class TimedStore(RunStateStore, StoreClock, Protocol):
    """What the contract of the store's clock needs."""


class OwnedStore(RunStateStore, LeaseStore, OwnerListing, Protocol):
    """What the contract about lists of owners needs."""


class BeginningStore(RunStateStore, LeaseStore, Beginnings, EventLog, Outbox, Protocol):
    """What the contract about beginnings needs."""


class JournalingStore(RunStateStore, EventLog, Protocol):
    """What the event contract needs."""


class JournalingLeasingStore(RunStateStore, EventLog, LeaseStore, Protocol):
    """What the contract about events of ownership needs."""


class DefiningStore(RunStateStore, Definitions, Protocol):
    """What the definition contract needs."""


class CallingStore(RunStateStore, Outbox, Protocol):
    """What the outbox contract needs."""


class BatchSettlingStore(RunStateStore, Outbox, OutboxBatches, Protocol):
    """What the contract about batches of settled callbacks needs."""


class LoggingStore(RunStateStore, LeaseStore, LogStore, Protocol):
    """What the log contract needs: appends are fenced, so leases come with it."""


class ListingStore(LoggingStore, LogListing, Protocol):
    """What the contract about lists of output needs."""


class MeasuringStore(LoggingStore, LogSizes, Protocol):
    """What the contract about sizes of output needs."""


class ForgettingStore(RunStateStore, Retention, Protocol):
    """What the retention contract needs."""


class ForgettingCallingStore(RunStateStore, Outbox, Retention, Protocol):
    """What the contract about retention and callbacks needs."""


class ForgettingLoggingStore(LoggingStore, Retention, Protocol):
    """What the contract about retention and output needs."""


class KeptUpStore(RunStateStore, Upkeep, Protocol):
    """What the upkeep contract needs."""
