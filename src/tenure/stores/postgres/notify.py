"""Hints (wakeups) by ``NOTIFY``: a run may be claimed, an owner has a cancel request. They carry an
id or a queue, no state, and may be lost: workers poll besides.

They are announced after the commit, in a transaction that writes nothing, because a commit with
``NOTIFY`` holds a lock of the whole database until it is on disk; at most one per process in ten
milliseconds. They are received on a separate connection. Runs to claim have a channel of their own,
so that processes that only submit are not woken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import groupby
from typing import NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec

from tenure.aio import end
from tenure.model.errors import TenureError
from tenure.model.query import is_of_queue
from tenure.stores.postgres.connection import pause
from tenure.stores.postgres.pools import Connections, Purpose
from tenure.stores.postgres.rows import can_be_stored
from tenure.stores.postgres.statements import SQL, Call

_log = logging.getLogger("tenure.stores")

_LISTEN = {"tenure": "listen", "tenure_queue": "listen_to_queues"}
"""The statement for each channel."""
_ANNOUNCE_INTERVAL_S = 0.01
_CLOSE_TIMEOUT_S = 1.0
"""For hints still to be announced."""
_MAX_PAYLOAD_BYTES = 7000
"""The server's limit is 8000."""
_RECONNECT_PAUSES_S = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Begins again after a connection that lasted longer than the last of them."""
_CHECK_TIMEOUT_S = 2.0

_topics = msgspec.json.Decoder(frozenset[str])


def channel_of(topic: str) -> str:
    return "tenure_queue" if is_of_queue(topic) else "tenure"


def announcement(topics: Iterable[str]) -> Call:
    notifications = [
        (channel, payload)
        for channel, those in groupby(sorted(topics, key=channel_of), channel_of)
        for payload in payloads(those)
    ]
    return ("announce", [channel for channel, _ in notifications], [p for _, p in notifications])


def payloads(topics: Iterable[str]) -> Iterator[str]:
    """As few as possible. Leaves out a topic that is too large."""
    room = _MAX_PAYLOAD_BYTES
    some: list[str] = []
    for topic in sorted(filter(can_be_stored, topics)):
        size = len(msgspec.json.encode(topic)) + 1
        if size > room and some:
            yield msgspec.json.encode(some).decode()
            room, some = _MAX_PAYLOAD_BYTES, []
        if size <= room:
            some.append(topic)
            room -= size
    if some:
        yield msgspec.json.encode(some).decode()


class Announcer:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._topics: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def announce(self, topics: Iterable[str]) -> None:
        """Returns at once."""
        self._topics.update(topics)
        if self._topics and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        while self._topics:
            topics, self._topics = self._topics, set()
            try:
                async with self._connections.session(Purpose.READING) as session:
                    try:
                        await session.all(*announcement(topics))
                    except BaseException:
                        # A full queue stays full until its usage is queried.
                        await session.all("make_room_for_hints")
                        raise
            except TenureError as error:
                _log.debug("hints were lost: %s", error)
            await pause(_ANNOUNCE_INTERVAL_S)

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_TIMEOUT_S)
            self._task.cancel()


class _Listener(NamedTuple):
    topics: frozenset[str]
    heard: Callable[[], None]


class WakeupCalls:
    _connections: Connections
    _listening: WeakKeyDictionary[asyncio.AbstractEventLoop, Listening]

    @asynccontextmanager
    async def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AsyncIterator[None]:
        if not self._connections.address.wakeups:
            yield
            return
        loop = asyncio.get_running_loop()
        listening = self._listening.setdefault(loop, Listening(self._connections))
        listener = _Listener(frozenset(topics), heard)
        listening.add(listener)
        try:
            yield
        finally:
            await listening.remove(listener)

    async def hears_hints(self) -> bool | None:
        """Whether a test hint arrives: none do through a pooler that assigns another connection to
        each transaction."""
        if not self._connections.address.wakeups:
            return None
        topic = f"echo:{uuid4().hex}"
        async with self._connections.apart(2 * _CHECK_TIMEOUT_S) as listener:
            await listener.all(_LISTEN[channel_of(topic)])
            async with self._connections.session(Purpose.READING) as session:
                await session.all(*announcement([topic]))
            async with aclosing(listener.connection.notifies(timeout=_CHECK_TIMEOUT_S)) as hints:
                async for hint in hints:
                    if topic in hint.payload:
                        return True
        return False


class Listening:
    """One connection for all listeners of an event loop, while there are any; replaced when a
    listener needs another channel."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._listeners: list[_Listener] = []
        self._channels: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._former: set[asyncio.Task[None]] = set()
        self._hears = False

    def add(self, listener: _Listener) -> None:
        self._listeners.append(listener)
        channels = frozenset(map(channel_of, listener.topics))
        if self._task is None or not channels <= self._channels:
            self._begin(self._channels | channels)
        elif self._hears:
            listener.heard()

    def _begin(self, channels: frozenset[str]) -> None:
        if self._task is not None:
            self._task.cancel()
            self._former.add(self._task)
            self._task.add_done_callback(self._former.discard)
        self._channels, self._hears = channels, False
        self._task = asyncio.ensure_future(self._keep_listening(channels))

    async def remove(self, listener: _Listener) -> None:
        self._listeners.remove(listener)
        if not self._listeners:
            await self.close()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._channels, self._hears = frozenset(), False
            await end(task, *self._former)

    async def _keep_listening(self, channels: frozenset[str]) -> None:
        failures, time = 0, asyncio.get_running_loop().time
        while True:
            began = time()
            try:
                await self._listen(channels)
            except Exception as error:  # noqa: BLE001  reconnect after any error
                _log.debug("hints are not heard: %s", error)
            self._hears = False
            if time() - began > _RECONNECT_PAUSES_S[-1]:
                failures = 0
            await pause(_RECONNECT_PAUSES_S[min(failures, len(_RECONNECT_PAUSES_S) - 1)])
            failures += 1

    async def _listen(self, channels: frozenset[str]) -> None:
        """Until the connection ends."""
        async with self._connections.lent() as connection:
            for channel in sorted(channels):
                await connection.execute(SQL[_LISTEN[channel]], prepare=False)
            self._hears = True
            self._wake(None)  # hints may have been missed
            async for hint in connection.notifies():
                try:
                    self._wake(_topics.decode(hint.payload))
                except (msgspec.DecodeError, RecursionError):
                    self._wake(None)  # at worst a worker polls in vain

    def _wake(self, topics: frozenset[str] | None) -> None:
        for listener in list(self._listeners):
            if topics is None or topics & listener.topics:
                listener.heard()
