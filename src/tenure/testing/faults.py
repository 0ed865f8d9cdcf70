"""A store on a bad day, and a client that lives with it.

``FaultyStore`` stands before any store and, by a seed, does what a network and a database do:
it fails before anything happened, it is slow, it does the work and loses the answer, or it does
the work only after it has said that it could not. ``RetryingStore`` is the client the ports ask
for: it sends the very same call again until it is answered. Through the two of them a store must
keep every promise of its contract:

    store = RetryingStore(FaultyStore(store, seed=7, rate=0.10))

``OneFaultStore`` lets one chosen writing call fail instead (``contracts.FaultSweep`` chooses each
in turn). All three offer exactly the protocols of the store behind them, also to ``isinstance``.
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
"""Every call a store can be asked for."""
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
_AT_HAND: frozenset[str] = frozenset({"durable", *_MEMBERS} - METHODS - {"keeping"})
"""Not asked of anybody: it is in this process's memory. Or hints, which are promised by nobody: no
fault could be noticed."""

Method = Callable[..., Awaitable[Any]]
Pause = Callable[[float], Awaitable[None]]


class Fault(StrEnum):
    BEFORE = "before"
    """Refused at the door: nothing was applied."""
    DELAY = "delay"
    """Answered, but late: others get in between."""
    LOST_ANSWER = "lost answer"
    """Applied, but reported as failed."""
    LATE = "late"
    """Reported as failed, and applied a little later: before the next call, or, if that call is
    its own repetition, perhaps just after it."""


SWEPT = (Fault.BEFORE, Fault.LOST_ANSWER, Fault.LATE)
"""What a sweep lets happen to a call. A delay alone changes nothing for one client."""


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
    """Puts ``_ask`` between the caller and each protocol method that the store has.

    The methods become attributes of the instance, not of the class: since Python 3.12
    ``isinstance`` with a protocol sees no ``__getattr__``, and a class-level method would claim
    powers the store lacks.
    """

    durable: bool

    def __init__(self, store: Any) -> None:
        self._store = store
        for name in METHODS:
            method = getattr(store, name, None)
            if method is not None:
                setattr(self, name, self._between(name, method))
        for name in _AT_HAND:
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
        """What this wrapper is to its store, for a line that is kept apart from it."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """What is in no protocol (``close`` …) goes straight to the store."""
        if name == "_store":
            raise AttributeError(name)
        return getattr(self._store, name)


class FaultyStore(_Wrapper):
    """``store`` with faults at ``rate`` per call; ``rates`` overrides it method by method.

    The same seed and the same order of calls meet the same faults. ``injected`` counts them by
    (method, fault), so that a test can show that it met any; those of lines kept apart are among
    them. ``pause`` is how a delay waits; a simulation passes its own.
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
        """Apply what is late; return the calls that ``call``, repeating them, may overtake."""
        late, self._late = self._late, []
        overtaken = []
        for earlier in late:
            if call.repeats(earlier) and self._random.random() < 0.5:
                overtaken.append(earlier)
            else:
                await _drop_answer(earlier)
        return overtaken

    def _beside(self, line: Any) -> FaultyStore:
        """It draws for itself and keeps its own late calls: a line belongs to another event loop,
        and no fault may depend on which of two threads was faster."""
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
    """Which writing call of a store, counted from 1, meets which fault; and what was seen of it."""

    def __init__(self, number: int = 0, fault: Fault | None = None) -> None:
        self.number = number
        self.fault = fault
        self.calls: list[str] = []
        """The writing calls so far."""
        self.met = False
        """The fault has happened, and what was late has arrived."""
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
    """``store``, of which one writing call meets its fault and no other call meets any.

    A ``LATE`` call is applied just after the next call of its name, which is its repetition unless
    others write at the same time. (Just before it, that would be a lost answer.)
    """

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
    """Apply the call; its answer is lost, also if it refuses the call or its arguments."""
    with suppress(TenureError, ValueError):
        await call.send()


class RetryingStore(_Wrapper):
    """Sends the same call, ids and all, until it is answered; after ``attempts`` it gives up.

    No backoff: it is for tests, where the fault is gone with the next draw.
    """

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
