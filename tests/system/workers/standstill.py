"""Bringing a worker to a standstill at one exact point: what it asks of store and broker passes
through here.

Frozen, the whole process stops until SIGCONT, its threads too. Hung, only its event loop does, and
until SIGUSR1: its keeper lives on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

import tenure
from tenure.model.update import Event
from tenure.ports.store import Attended
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.faults import METHODS


class Point(Struct, frozen=True):
    """The first call of ``method`` for which ``meant`` holds, before it is sent or after it was
    answered (then ``meant`` gets the answer too)."""

    method: str
    before: bool
    meant: Callable[..., bool]


def _tells(kind: str) -> Callable[..., bool]:
    def meant(writes: Sequence[Any], *_: object) -> bool:
        return any(event.type == kind for event in _events(writes))

    return meant


def _events(writes: Sequence[Any]) -> Iterator[Event]:
    return (event for write in writes for event in write.effect.events)


BEFORE_BEGINNING, AFTER_BEGINNING = "before beginning", "after beginning"
"""The commit with which a worker that rests takes a run and begins it."""
POINTS = {
    BEFORE_BEGINNING: Point("begin_run", True, lambda *_: True),
    AFTER_BEGINNING: Point("begin_run", False, lambda *_: True),
    "after claim": Point("claim_runs", False, lambda request, claimed: bool(claimed)),
    "after intent": Point("update_runs", False, _tells("host.running")),
    "in mid-command": Point("renew_leases", False, lambda *_: True),
    "before result": Point("update_runs", True, _tells("host.success")),
    "in mid-output": Point("append", True, lambda *args: args[3] > 0),
    "before the end": Point("update_runs", True, _tells("run.success")),
    "before renewal": Point("renew_leases", True, lambda *_: True),
    "before acknowledgement": Point("acknowledge", True, lambda *_: True),
}
"""All on the way to the store, but for the last, on the way to a broker."""
WRITES = ("update_runs", "begin_run", "update_run", "append", "release_lease")
_AS_THEY_ARE = ("listen",)
"""Nobody waits for their answers."""
_OF_A_BROKER = ("publish", "take", "acknowledge", "give_back", "purge", "ping")


def say(*words: object) -> None:
    """A line of its own, whichever thread says it: renewals have theirs."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Standstill:
    """Once."""

    def __init__(self, name: str | None, store: Any, *, hung: bool) -> None:
        self._point = POINTS[name] if name else None
        self._file = store.path if isinstance(store, SQLiteStore) else None
        self._hung = hung
        self._gate = threading.Lock()
        self._under_way = 0
        self.over = False

    async def here(self, name: str, *args: Any, before: bool) -> bool:
        point = self._point
        if (
            point is None
            or (point.method, point.before) != (name, before)
            or not point.meant(*args)
        ):
            return False
        self._point = None
        if self._hung:
            _hang()
        else:
            while not self._frozen():
                await asyncio.sleep(0.001)
        self.over = True
        return True

    def _frozen(self) -> bool:
        """Not while a call to the store is under way, from whichever thread, even if nobody waits
        for it any more: a frozen process must not hold a lock of SQLite's, which has nobody to take
        it away."""
        with self._gate:
            if self._under_way or (self._file is not None and _is_locked(self._file)):
                return False
            say("freezes", time.time())
            os.kill(os.getpid(), signal.SIGSTOP)
            return True

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        with self._gate:
            self._under_way += 1
        try:
            yield
        finally:
            with self._gate:
                self._under_way -= 1


def _is_locked(file: Path) -> bool:
    connection = apsw.Connection(str(file))
    try:
        connection.execute("begin immediate; rollback")
    except apsw.BusyError:
        return True
    finally:
        connection.close()
    return False


def _hang() -> None:
    """In the thread of the event loop, where Python hears signals too."""
    over: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: over.append(number))
    say("freezes", time.time())
    while not over:
        time.sleep(0.01)


class Store:
    """A real one behind it. Of each write that ends after the standstill it says how it was
    answered; of each renewal, until when."""

    def __init__(self, store: Any, standstill: Standstill) -> None:
        self._real = store
        self._standstill = standstill
        self.durable: bool = store.durable
        for name in METHODS:
            if hasattr(store, name):
                setattr(self, name, self._through(name, store))
        for name in _AS_THEY_ARE:
            if hasattr(store, name):
                setattr(self, name, getattr(store, name))
        if isinstance(store, Attended):
            self.attended_by = store.attended_by

    def find_nothing_by(self, way: str) -> None:
        """From now on, if the store has that way to find runs at all."""
        real = getattr(self, way, None)
        if real is None:
            return

        async def claims_nothing(*_: Any) -> list[Any]:
            return []

        async def sees_nothing(*args: Any, **kwargs: Any) -> list[Any]:
            await real(*args, **kwargs)  # that somebody looked is known to the store
            return []

        blind = {"claim_runs": claims_nothing, "find_waiting": sees_nothing}
        setattr(self, way, blind.get(way, lambda _: None))

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[Any]:
        async with self._real.keeping() as line:
            yield Store(line, self._standstill) if line is not self._real else self

    def _through(self, name: str, store: Any) -> Callable[..., Awaitable[Any]]:
        real = getattr(store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._standstill.here(name, *args, before=True)
            try:
                async with self._standstill.call():
                    answer = await real(*args, **kwargs)
            except tenure.TenureError as error:
                self._answered(name, type(error).__name__)
                raise
            if name == "renew_leases":
                ends = [each.expires_at.timestamp() for each in answer if each.ok]
                say("renewed", max(ends, default=0.0))
            if await self._standstill.here(name, *args, answer, before=False):
                return answer
            for outcome in answer if name == "update_runs" else ():
                self._answered(name, type(outcome).__name__)
            if name != "update_runs":
                self._answered(name, "accepted")
            return answer

        return call

    def _answered(self, name: str, how: str) -> None:
        if self._standstill.over and name in WRITES:
            say("answered", name, how)


class Broker:
    def __init__(self, broker: Any, standstill: Standstill) -> None:
        self._standstill = standstill
        for name in _OF_A_BROKER:
            setattr(self, name, self._through(name, getattr(broker, name)))

    def _through(self, name: str, real: Any) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._standstill.here(name, *args, before=True)
            return await real(*args, **kwargs)

        return call
