"""A store whose use is counted does what it did before."""

from __future__ import annotations

from contextlib import nullcontext
from time import monotonic

import pytest

from tenure.gateway.metrics import Meters, measured
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts import (
    BeginningsContract,
    FaultSweep,
    ManualTime,
    OutboxBatchesContract,
)
from tenure.testing.contracts.harness import OpenStore
from tenure.testing.contracts.leases import Renewals
from tenure.testing.faults import PROTOCOLS


class Measured(FaultSweep, ManualTime):
    max_swept_calls = 0

    @pytest.fixture
    def open_store(self, clock: ManualClock) -> OpenStore:
        return lambda: nullcontext(measured(InMemoryStore(clock), Meters(), monotonic))


class TestLeases(Measured, Renewals): ...


class TestBeginnings(Measured, BeginningsContract): ...


class TestOutboxBatches(Measured, OutboxBatchesContract): ...


def test_it_has_the_protocols_of_the_store() -> None:
    store = InMemoryStore()
    counted = measured(store, Meters(), monotonic)
    for protocol in PROTOCOLS:
        assert isinstance(counted, protocol) == isinstance(store, protocol)
