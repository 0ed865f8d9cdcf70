"""Bases of the contract classes: the store, time, and fault injection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from inspect import Parameter, Signature, isfunction, signature
from itertools import product
from typing import Any, Protocol

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
from tenure.testing.faults import SWEPT, FaultAt, OneFaultStore, RetryingStore

SUITE_VERSION = "1.0"
"""Major: a store that passed may fail. Minor: tests were added."""


class ContractHarness:
    """Base of every contract; needs a fixture ``store``: a fresh, empty store for each test.

    Some tests wait until leases of ``lease_seconds`` expire; raise that for a slow store. With
    ``ManualTime`` in front of the contract, and a store built with its fixture ``clock``, no test
    waits.
    """

    pytestmark = pytest.mark.asyncio

    lease_seconds: float = 1.0
    """Duration of leases that expire in a test."""

    swept: bool = True
    """Whether its clauses hold for a client that repeats failed calls (``FaultSweep``)."""

    async def pass_time(self, seconds: float) -> None:
        """Let ``seconds`` pass for the store."""
        await asyncio.sleep(seconds)

    async def expire_leases(self) -> None:
        """Outlive every lease of ``lease_seconds`` given so far."""
        await self.pass_time(self.lease_seconds * 1.1)


class ManualTime(ContractHarness):
    """For stores that take a clock: moves it instead of waiting."""

    lease_seconds = 30.0
    _manual: ManualClock

    @pytest.fixture
    def clock(self) -> ManualClock:
        self._manual = ManualClock()
        return self._manual

    async def pass_time(self, seconds: float) -> None:
        self._manual.advance(seconds)


# Stores with the protocols of a contract.


class BatchingStore(RunStateStore, BatchUpdates, Protocol): ...


class WakingStore(RunStateStore, LeaseStore, Wakeups, Protocol): ...


class FeedingStore(RunStateStore, EventLog, ChangeFeed, Protocol): ...


class CountingStore(RunStateStore, LeaseStore, CensusTaking, Protocol): ...


class VersionedStore(RunStateStore, LeaseStore, RunVersions, Protocol): ...


class LeasingStore(RunStateStore, LeaseStore, Protocol): ...


class ApartKeptStore(RunStateStore, LeaseStore, KeptApart, Protocol): ...


class TimedStore(RunStateStore, StoreClock, Protocol): ...


class OwnedStore(RunStateStore, LeaseStore, OwnerListing, Protocol): ...


class BeginningStore(RunStateStore, LeaseStore, Beginnings, EventLog, Outbox, Protocol): ...


class JournalingStore(RunStateStore, EventLog, Protocol): ...


class JournalingLeasingStore(RunStateStore, EventLog, LeaseStore, Protocol): ...


class DefiningStore(RunStateStore, Definitions, Protocol): ...


class CallingStore(RunStateStore, Outbox, Protocol): ...


class BatchSettlingStore(RunStateStore, Outbox, OutboxBatches, Protocol): ...


class LoggingStore(RunStateStore, LeaseStore, LogStore, Protocol): ...


class ListingStore(LoggingStore, LogListing, Protocol): ...


class MeasuringStore(LoggingStore, LogSizes, Protocol): ...


class ForgettingStore(RunStateStore, Retention, Protocol): ...


class ForgettingCallingStore(RunStateStore, Outbox, Retention, Protocol): ...


class ForgettingLoggingStore(LoggingStore, Retention, Protocol): ...


class KeptUpStore(RunStateStore, Upkeep, Protocol): ...


Clause = Callable[..., Awaitable[None]]
OpenStore = Callable[[], AbstractAsyncContextManager[Any]]


class FaultSweep(ContractHarness):
    """Runs every clause of a contract, and again with a fault in each of its writes.

    Put it in front of a contract and give the fixture ``open_store`` instead of ``store``::

        class TestRuns(FaultSweep, RunStateStoreContract):
            @pytest.fixture
            def open_store(self, tmp_path_factory):
                return lambda: MyStore.open(tmp_path_factory.mktemp("runs"))

    ``open_store()`` is an async context manager that yields a fresh, empty store. Each clause is
    one test: it runs without a fault, then once for every writing call and every kind of fault
    (``SWEPT``), on a fresh store, with a client that repeats the failed call. A failure names the
    clause, the call and the fault. A clause that needs more than the store (a clock, a second
    store) runs without faults, as does a contract with ``swept = False``.
    """

    max_swept_calls: int = 12
    """Only the last calls of a longer clause are swept. With 0 there are no faults: enough for a
    wrapper around a store that was swept."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.swept:
            return
        for name in dir(cls):
            clause = getattr(cls, name)
            if name.startswith("test_") and isfunction(clause) and _needs_only_the_store(clause):
                setattr(cls, name, _swept(clause))

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> Any:
        """For clauses without faults."""
        async with open_store() as store:
            yield store

    @asynccontextmanager
    async def open_with(self, open_store: Any, at: FaultAt) -> Any:
        """A fresh store that meets ``at``, as its client sees it. Override it to inject the fault
        elsewhere, for example behind a gateway."""
        async with open_store() as store:
            yield RetryingStore(OneFaultStore(store, at))


def _swept(clause: Clause) -> Clause:
    @wraps(clause)
    async def sweep(self: FaultSweep, open_store: Any) -> None:
        async def run(values: Mapping[str, Any], at: FaultAt) -> None:
            try:
                async with self.open_with(open_store, at) as store:
                    await clause(self, store=store, **values)
                if at.fault is not None and not at.met:
                    pytest.fail("the clause ended without meeting its fault")
            except BaseException as error:
                error.add_note(f"clause {clause.__name__}, {_shown(values)}{at}")
                raise

        swept = set()
        for values in _variants(clause):
            dry = FaultAt()
            await run(values, dry)
            calls = tuple(dry.calls)
            if calls in swept:
                continue
            swept.add(calls)
            first = max(0, len(calls) - self.max_swept_calls) + 1
            for number in range(first, len(calls) + 1):
                for fault in SWEPT:
                    await run(values, FaultAt(number, fault))

    parameters = (Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in _SWEEP_NEEDS)
    sweep.__signature__ = Signature(list(parameters))  # type: ignore[attr-defined]
    marks = [mark for mark in _marks(clause) if mark.name != "parametrize"]
    sweep.pytestmark = marks  # type: ignore[attr-defined]
    return sweep


_SWEEP_NEEDS = ("self", "open_store")


def _needs_only_the_store(clause: Clause) -> bool:
    given = {name for names, _ in _parametrized(clause) for name in names}
    return set(signature(clause).parameters) - given == {"self", "store"}


def _variants(clause: Clause) -> Iterator[dict[str, Any]]:
    """The parameter sets of the clause."""
    tables = [
        [dict(zip(names, row, strict=True)) for row in rows]
        for names, rows in _parametrized(clause)
    ]
    for chosen in product(*tables):
        yield {name: value for values in chosen for name, value in values.items()}


def _parametrized(clause: Clause) -> Iterator[tuple[list[str], list[tuple[Any, ...]]]]:
    for mark in _marks(clause):
        if mark.name == "parametrize":
            names, values = mark.args
            if isinstance(names, str):
                names = [name.strip() for name in names.split(",")]
            rows = values if len(names) > 1 else ((value,) for value in values)
            yield list(names), list(rows)


def _marks(clause: Clause) -> list[pytest.Mark]:
    return list(getattr(clause, "pytestmark", ()))


def _shown(values: Mapping[str, Any]) -> str:
    return "".join(f"{name}={value!a}, " for name, value in values.items())
