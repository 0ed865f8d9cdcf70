"""A store whose use is counted does what it did before."""

from __future__ import annotations

from time import monotonic

import pytest

from tenure.gateway.metrics import Meters, measured
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BatchUpdatesContract,
    LeaseStoreContract,
    ManualTime,
    OutboxBatchesContract,
    OutboxContract,
    RunStateStoreContract,
)
from tenure.testing.faults import PROTOCOLS


class Measured(ManualTime):
    @pytest.fixture
    def store(self, clock: ManualClock) -> InMemoryStore:
        return measured(InMemoryStore(clock=clock), Meters(), monotonic)


class TestRuns(Measured, RunStateStoreContract): ...


class TestBatches(Measured, BatchUpdatesContract): ...


class TestLeases(Measured, LeaseStoreContract): ...


class TestOutbox(Measured, OutboxContract): ...


class TestOutboxBatches(Measured, OutboxBatchesContract): ...


def test_it_has_the_protocols_of_the_store() -> None:
    store = InMemoryStore()
    counted = measured(store, Meters(), monotonic)
    for protocol in PROTOCOLS:
        assert isinstance(counted, protocol) == isinstance(store, protocol)
