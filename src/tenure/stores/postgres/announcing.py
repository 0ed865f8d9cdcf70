"""Telling other processes that there may be something to do.

``NOTIFY`` in the transaction that writes would hold a lock of the whole database across its flush:
with sixteen writers a fifth of their commits is left. So hints go out after the commit, in a
transaction of their own that writes nothing and waits for no disk; however many there are, one such
transaction per process in ten milliseconds. If it fails the hints are lost, which costs whoever
waits no more than the interval at which he looks anyway.

A process that has had nothing to say for a while lets its hints ride in the transaction that
writes, and whoever waits hears them a trip earlier; with a run that is submitted alone its record
rides too, and spares an idle worker to look (``offers``). That is ten times a second at most, and
one transaction of the whole database at a time: who meets another one at it lets his hints follow
the commit, so that no commit waits for another's.

The server keeps hints until all who listen, in any database, have looked. If one of them never
does, its queue is full one day, and every commit with ``NOTIFY`` fails. Then nothing rides until
hints have gone out apart once more, which is tried once a second. (A queue that was full stays so
until somebody asks how full it is.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from itertools import groupby
from weakref import WeakKeyDictionary

import msgspec

from tenure.model.errors import TenureError
from tenure.stores.postgres.channels import channel_of
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.failures import is_full_queue
from tenure.stores.postgres.names import can_be_stored
from tenure.stores.postgres.patience import pause
from tenure.stores.postgres.session import Call

_log = logging.getLogger("tenure.stores")

_EVERY = 0.01
_QUIET = 0.1
"""Seconds without a word after which hints ride in the transaction that writes."""
_FULL = 1.0
"""Seconds without a word after the server's queue was found to be full."""
_FAREWELL = 1.0
"""Seconds that closing waits for hints to go out."""
_LARGEST = 7000
"""Bytes. The server takes 8000."""


class Announcing:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._telling: WeakKeyDictionary[asyncio.AbstractEventLoop, _Telling] = WeakKeyDictionary()

    def announce(self, topics: Iterable[str]) -> None:
        """Returns at once."""
        new = frozenset(topics)
        if new:
            self._teller().add(new)

    def aboard(self, topics: Iterable[str]) -> list[str]:
        """What the transaction that makes these runs is to tell of them in its own statement, if it
        may. Nothing, if they are to be announced when it has committed."""
        new = frozenset(topics)
        return list(payloads(new)) if new and self._teller().may_ride() else []

    def none_aboard(self) -> None:
        """Until some have gone out by themselves: the server could not take them."""
        self._teller().full = True

    def _teller(self) -> _Telling:
        loop = asyncio.get_running_loop()
        telling = self._telling.get(loop)
        if telling is None:
            telling = self._telling[loop] = _Telling(self._connections)
        return telling

    async def close(self) -> None:
        telling = self._telling.pop(asyncio.get_running_loop(), None)
        if telling is not None:
            await telling.close()


class _Telling:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._topics: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._told_at = -_QUIET
        self._silent_until = 0.0
        self.full = False
        """The server's queue was, when we last told something."""

    def may_ride(self) -> bool:
        """Whether it is quiet; from now on it is not."""
        now = asyncio.get_running_loop().time()
        quiet, self._told_at = now - self._told_at >= _QUIET, now
        return quiet and not self.full

    def add(self, topics: frozenset[str]) -> None:
        self._told_at = asyncio.get_running_loop().time()
        if self._told_at < self._silent_until:
            return  # lost, as they would be
        self._topics |= topics
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._tell())

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_FAREWELL)
            self._task.cancel()

    async def _tell(self) -> None:
        while self._topics:
            topics, self._topics = self._topics, set()
            try:
                async with self._connections.session(Purpose.READING) as session:
                    await session.together(*announcing(topics, after_full_queue=self.full))
                self.full = False
            except TenureError as error:
                _log.debug("hints were lost: %s", error)
                if is_full_queue(error.__cause__):
                    self._fall_silent()
            await pause(_EVERY)

    def _fall_silent(self) -> None:
        self.full = True
        self._silent_until = asyncio.get_running_loop().time() + _FULL
        self._topics.clear()


def announcing(topics: Iterable[str], *, after_full_queue: bool) -> list[Call]:
    """A transaction. ``after_full_queue``: it makes room first, if there is some by now."""
    room: list[Call] = [("make_room_for_hints",)] if after_full_queue else []
    return [("begin",), *room, announcement(topics), ("commit",)]


def announcement(topics: Iterable[str]) -> Call:
    told = [
        (channel, payload)
        for channel, those in groupby(sorted(topics, key=channel_of), channel_of)
        for payload in payloads(those)
    ]
    return ("announce", [channel for channel, _ in told], [payload for _, payload in told])


def payloads(topics: Iterable[str]) -> Iterator[str]:
    """As few as hold them. A topic too large for any is left out."""
    room = _LARGEST
    some: list[str] = []
    for topic in sorted(filter(can_be_stored, topics)):
        size = len(msgspec.json.encode(topic)) + 1
        if size > room and some:
            yield msgspec.json.encode(some).decode()
            room, some = _LARGEST, []
        if size <= room:
            some.append(topic)
            room -= size
    if some:
        yield msgspec.json.encode(some).decode()
