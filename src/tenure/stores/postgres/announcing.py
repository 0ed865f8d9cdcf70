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
from tenure.stores.postgres.names import can_be_stored
from tenure.stores.postgres.patience import pause
from tenure.stores.postgres.session import Call

_log = logging.getLogger("tenure.stores")

_EVERY = 0.01
_QUIET = 0.1
"""Seconds without a word after which hints ride in the transaction that writes."""
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

    def may_ride(self) -> bool:
        """Whether it is quiet; from now on it is not."""
        now = asyncio.get_running_loop().time()
        quiet, self._told_at = now - self._told_at >= _QUIET, now
        return quiet

    def add(self, topics: frozenset[str]) -> None:
        self._told_at = asyncio.get_running_loop().time()
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
                    await session.together(("begin",), announcement(topics), ("commit",))
            except TenureError as error:
                _log.debug("hints were lost: %s", error)
            await pause(_EVERY)


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
