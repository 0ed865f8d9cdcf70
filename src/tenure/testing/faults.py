"""Fault injection: stores that fail, and a client that retries.

``FaultyStore`` wraps any store and injects, by a seed, faults of networks and databases: a call
fails, is slow, is applied but its answer lost, or is applied after it was reported as failed.
``RetryingStore`` is the client that the ports ask for: it repeats a call until it is answered.
Behind the two of them a store must pass its contracts:

    store = RetryingStore(FaultyStore(store, seed=7, rate=0.10))

``OneFaultStore`` injects a fault into one writing call (for ``contracts.FaultSweep``). All three
have exactly the protocols of the store behind them, also for ``isinstance``.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from inspect import iscoroutinefunction
from itertools import count
from threading import Lock
from typing import Any, NamedTuple

from tenure.model.errors import StoreUnavailable, TenureError
from tenure.ports.callbacks import Outbox, OutboxBatches
from tenure.ports.leases import (
    KeptApart,
    LeaseStore,
    LiveRuns,
    OwnerListing,
    WakeupCheck,
    Wakeups,
    WorkerRegistry,
)
from tenure.ports.store import (
    Attended,
    BatchUpdates,
    Beginnings,
    CensusTaking,
    ChangeFeed,
    Definitions,
    EventLog,
    LogListing,
    LogSizes,
    LogStore,
    ParallelBatches,
    ReadinessCheck,
    Retention,
    RunStateStore,
    RunVersions,
    StoreClock,
    TokenStore,
    Upkeep,
)

PROTOCOLS: tuple[type, ...] = (
    RunStateStore,
    BatchUpdates,
    ParallelBatches,
    LeaseStore,
    KeptApart,
    Beginnings,
    EventLog,
    ChangeFeed,
    Definitions,
    Outbox,
    OutboxBatches,
    LogStore,
    LogListing,
    LogSizes,
    WorkerRegistry,
    OwnerListing,
    CensusTaking,
    StoreClock,
    RunVersions,
    TokenStore,
    LiveRuns,
    Wakeups,
    WakeupCheck,
    Attended,
    Retention,
    ReadinessCheck,
    Upkeep,
)
_MEMBERS: Mapping[str, Any] = {
    name: member
    for protocol in PROTOCOLS
    for name, member in vars(protocol).items()
    if not name.startswith("_")
}
METHODS: frozenset[str] = frozenset(
    name for name, member in _MEMBERS.items() if iscoroutinefunction(member)
)
"""All asynchronous calls of the protocols."""
WRITES: frozenset[str] = frozenset(
    {
        "add_first_token",
        "add_token",
        "append",
        "begin_run",
        "claim_deliveries",
        "claim_run",
        "claim_runs",
        "create_run",
        "heartbeat",
        "migrate_store",
        "prune_runs",
        "release_lease",
        "renew_leases",
        "requeue_delivery",
        "revoke_token",
        "settle_and_claim",
        "settle_deliveries",
        "settle_delivery",
        "update_run",
        "update_runs",
    }
)
"""The calls that change a store; all others read."""
_PASSED_THROUGH: frozenset[str] = frozenset({"durable", *_MEMBERS} - METHODS - {"keeping"})
"""Members without faults: attributes, and hints, which may be lost anyway."""

Method = Callable[..., Awaitable[Any]]
Pause = Callable[[float], Awaitable[None]]


class Fault(StrEnum):
    BEFORE = "before"
    """Failed, not applied."""
    DELAY = "delay"
    """Answered late: other calls come first."""
    LOST_ANSWER = "lost answer"
    """Applied, but reported as failed."""
    LATE = "late"
    """Reported as failed, and applied later: before the next call or, if that is its repetition,
    perhaps just after it."""


SWEPT = (Fault.BEFORE, Fault.LOST_ANSWER, Fault.LATE)
"""The faults of a sweep; a delay has no effect for a single client."""


class _Call(NamedTuple):
    name: str
    method: Method
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    async def send(self) -> Any:
        return await self.method(*self.args, **self.kwargs)

    def repeats(self, other: _Call) -> bool:
        return (self.name, self.args, self.kwargs) == (other.name, other.args, other.kwargs)


class _Wrapper:
    """Calls ``_ask`` for each protocol method of the store.

    The methods are attributes of the instance: since Python 3.12 ``isinstance`` with a protocol
    ignores ``__getattr__``, and methods of the class would claim protocols that the store lacks.
    """

    durable: bool

    def __init__(self, store: Any) -> None:
        self._store = store
        for name in METHODS:
            method = getattr(store, name, None)
            if method is not None:
                setattr(self, name, self._between(name, method))
        for name in _PASSED_THROUGH:
            if hasattr(store, name):
                setattr(self, name, getattr(store, name))
        if isinstance(store, KeptApart):
            self.keeping = self._keeping

    def _between(self, name: str, method: Method) -> Method:
        async def ask(*args: Any, **kwargs: Any) -> Any:
            return await self._ask(_Call(name, method, args, kwargs))

        return ask

    async def _ask(self, call: _Call) -> Any:
        return await call.send()

    @asynccontextmanager
    async def _keeping(self) -> AsyncIterator[Any]:
        async with self._store.keeping() as line:
            yield self._beside(line)

    def _beside(self, line: Any) -> Any:
        """This wrapper around ``line``, the store of ``keeping``."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Members outside the protocols, such as ``close``."""
        if name == "_store":
            raise AttributeError(name)
        return getattr(self._store, name)


class FaultyStore(_Wrapper):
    """``store`` with faults at ``rate`` per call; ``rates`` overrides it by method.

    The same seed and order of calls give the same faults. ``injected`` counts them by (method,
    fault), those of ``keeping`` included. ``pause`` waits for a delay.
    """

    def __init__(
        self,
        store: Any,
        *,
        seed: int,
        rate: float,
        rates: Mapping[str, float] | None = None,
        faults: tuple[Fault, ...] = tuple(Fault),
        pause: Pause = asyncio.sleep,
        longest_pause: float = 0.001,
    ) -> None:
        unknown = set(rates or ()) - METHODS
        if unknown:
            raise ValueError(f"no store has a method {sorted(unknown)[0]!r}")
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._rate = rate
        self._rates = dict(rates or {})
        self._faults = faults
        self._pause = pause
        self._longest_pause = longest_pause
        self._late: list[_Call] = []
        self.calls: Counter[str] = Counter()
        self.injected: Counter[tuple[str, Fault]] = Counter()
        self._counting = Lock()
        self._lines = count(1)
        super().__init__(store)

    async def _ask(self, call: _Call) -> Any:
        with self._counting:
            self.calls[call.name] += 1
        overtaken = await self._catch_up(call)
        try:
            return await self._meet_fault(call)
        finally:
            for late in overtaken:
                await _drop_answer(late)

    async def _meet_fault(self, call: _Call) -> Any:
        fault = self._draw(call.name)
        if fault is None:
            return await call.send()
        with self._counting:
            self.injected[call.name, fault] += 1
        if fault is Fault.DELAY:
            await self._pause(self._random.uniform(0, self._longest_pause))
            return await call.send()
        if fault is Fault.LATE:
            self._late.append(call)
        elif fault is Fault.LOST_ANSWER:
            await _drop_answer(call)
        raise StoreUnavailable(f"injected into {call.name}: {fault}")

    def _draw(self, name: str) -> Fault | None:
        if self._random.random() >= self._rates.get(name, self._rate):
            return None
        return self._random.choice(self._faults)

    async def _catch_up(self, call: _Call) -> list[_Call]:
        """Apply late calls; returns those that ``call``, repeating them, overtakes."""
        late, self._late = self._late, []
        overtaken = []
        for earlier in late:
            if call.repeats(earlier) and self._random.random() < 0.5:
                overtaken.append(earlier)
            else:
                await _drop_answer(earlier)
        return overtaken

    def _beside(self, line: Any) -> FaultyStore:
        """With its own seed and late calls: faults must not depend on the timing of threads."""
        beside = FaultyStore(
            line,
            seed=self._seed + next(self._lines),
            rate=self._rate,
            rates=self._rates,
            faults=self._faults,
            pause=self._pause,
            longest_pause=self._longest_pause,
        )
        beside.calls, beside.injected = self.calls, self.injected
        beside._counting = self._counting
        return beside


class FaultAt:
    """The fault of one writing call, counted from 1, and what has happened so far."""

    def __init__(self, number: int = 0, fault: Fault | None = None) -> None:
        self.number = number
        self.fault = fault
        self.calls: list[str] = []
        """The writing calls so far."""
        self.met = False
        """The fault has happened, and a late call has been applied."""
        self._counting = Lock()

    def __str__(self) -> str:
        if self.fault is None:
            return "no fault"
        name = self.calls[self.number - 1] if self.number <= len(self.calls) else "never made"
        return f"writing call {self.number} ({name}): {self.fault}"

    def meets(self, name: str) -> bool:
        with self._counting:
            self.calls.append(name)
            return self.fault is not None and len(self.calls) == self.number


class OneFaultStore(_Wrapper):
    """``store`` with a fault in one writing call. A ``LATE`` call is applied just after the next
    call of its name, usually its repetition."""

    def __init__(self, store: Any, at: FaultAt) -> None:
        self._at = at
        self._late: _Call | None = None
        super().__init__(store)

    async def _ask(self, call: _Call) -> Any:
        if call.name not in WRITES:
            return await call.send()
        if self._at.meets(call.name):
            return await self._fail(call)
        if self._late is None or call.name != self._late.name:
            return await call.send()
        late, self._late = self._late, None
        try:
            return await call.send()
        finally:
            await _drop_answer(late)
            self._at.met = True

    async def _fail(self, call: _Call) -> Any:
        if self._at.fault is Fault.LATE:
            self._late = call
        else:
            if self._at.fault is Fault.LOST_ANSWER:
                await _drop_answer(call)
            self._at.met = True
        raise StoreUnavailable(f"injected into {call.name}: {self._at.fault}")

    def _beside(self, line: Any) -> OneFaultStore:
        return OneFaultStore(line, self._at)


async def _drop_answer(call: _Call) -> None:
    """Apply the call; ignore its answer or error."""
    with suppress(TenureError, ValueError):
        await call.send()


class RetryingStore(_Wrapper):
    """Repeats the same call without backoff until it is answered, at most ``attempts`` times."""

    def __init__(self, store: Any, *, attempts: int = 50) -> None:
        self._attempts = attempts
        self.resent = 0
        super().__init__(store)

    async def _ask(self, call: _Call) -> Any:
        for _ in range(self._attempts - 1):
            try:
                return await call.send()
            except StoreUnavailable:
                self.resent += 1
        return await call.send()

    def _beside(self, line: Any) -> RetryingStore:
        return RetryingStore(line, attempts=self._attempts)
