"""Hearing what other processes announce, on a connection that does nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from tenure.aio import end
from tenure.stores.postgres.channels import LISTEN, channel_of
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.line import Line
from tenure.stores.postgres.offers import Offers
from tenure.stores.postgres.patience import pause
from tenure.stores.postgres.statements import SQL
from tenure.stores.postgres.watched import LOOKS_AGAIN

_log = logging.getLogger("tenure.stores")

_AGAIN = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds before the line is made anew, and anew again. One that lasts for longer than the last of
them begins with the first once more."""
_NO_SEAL = (
    "%s: runs begin a moment later than they could, as what their announcements bring along cannot "
    "be believed: tenure store check says why"
)


class _Announced(msgspec.Struct):
    """A run that was submitted alone."""

    topics: frozenset[str]
    run: msgspec.Raw
    seal: str | None = None


_announced = msgspec.json.Decoder(frozenset[str] | _Announced)


class _Listener(NamedTuple):
    topics: frozenset[str]
    heard: Callable[[], None]


class Listening:
    def __init__(self, connections: Connections, offers: Offers) -> None:
        self._connections = connections
        self._offers = offers
        self._ears: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ear] = WeakKeyDictionary()

    @asynccontextmanager
    async def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AsyncIterator[None]:
        if not self._connections.address.wakeups:
            yield
            return
        loop = asyncio.get_running_loop()
        ear = self._ears.get(loop)
        if ear is None:
            ear = self._ears[loop] = _Ear(self._connections, self._offers)
        listener = _Listener(frozenset(topics), heard)
        ear.add(listener)
        try:
            yield
        finally:
            await ear.remove(listener)

    async def close(self) -> None:
        """Also those of loops in other threads, which end theirs by themselves, in a moment."""
        here = asyncio.get_running_loop()
        for loop, ear in list(self._ears.items()):
            if loop is here:
                await ear.close()
            else:
                with suppress(RuntimeError):  # it has ended
                    loop.call_soon_threadsafe(ear.hang_up)
        self._ears.clear()


class _Ear:
    """One line for all who listen in an event loop, there while somebody does. Made anew when
    somebody wants to hear more than was listened for."""

    def __init__(self, connections: Connections, offers: Offers) -> None:
        self._connections = connections
        self._offers = offers
        self._listeners: list[_Listener] = []
        self._channels: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._former: set[asyncio.Task[None]] = set()
        self._hears = False
        self._secret: str | None = None
        self._told_of_no_seal = False

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
        self._task = asyncio.ensure_future(self._go_on(channels))

    async def remove(self, listener: _Listener) -> None:
        self._listeners.remove(listener)
        if not self._listeners:
            await self.close()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._channels, self._hears = frozenset(), False
            await end(task, *self._former)

    def hang_up(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _go_on(self, channels: frozenset[str]) -> None:
        failures = 0
        while True:
            try:
                self._secret = await self._seal()
                async with self._connections.own_line() as connection:
                    for channel in sorted(channels):
                        await connection.execute(SQL[LISTEN[channel]], prepare=False)
                    self._hears, began = True, asyncio.get_running_loop().time()
                    self._offers.may_have_missed_some()
                    self._tell(None)  # whatever was said while nobody listened
                    try:
                        await self._hear_all(connection)
                    finally:
                        if asyncio.get_running_loop().time() - began > _AGAIN[-1]:
                            failures = 0
            except Exception as error:  # noqa: BLE001  whatever it is, hints are to be heard again
                _log.debug("hints are not heard: %s", error)
            self._hears = False
            await pause(_AGAIN[min(failures, len(_AGAIN) - 1)])
            failures += 1

    async def _seal(self) -> str | None:
        """``None``: nothing that hints bring along can be believed. They are heard all the same."""
        async with self._connections.session(Purpose.READING) as session:
            (may_use,) = await session.one("may_use_seal")
            found = await session.first("seal") if may_use else None
        if found is None and not self._told_of_no_seal:
            self._told_of_no_seal = True
            _log.warning(_NO_SEAL, self._connections.address.place)
        return None if found is None else str(found[0])

    async def _hear_all(self, connection: Line) -> None:
        """Until the line ends. A hint is followed at the very moment at which it comes: every task
        that took part would have to be woken up first."""
        loop, line, number = asyncio.get_running_loop(), connection.pgconn, connection.fileno()
        ended: asyncio.Future[None] = loop.create_future()

        def hear() -> None:
            try:
                line.consume_input()
                for _ in range(LOOKS_AGAIN if line.ssl_in_use else 0):
                    line.consume_input()
                while (said := line.notifies()) is not None:
                    self._hear(said.extra)
            except Exception as error:  # noqa: BLE001  (raised where the line is looked after)
                loop.remove_reader(number)  # now: the number may be somebody else's in a moment
                if not ended.done():
                    ended.set_exception(error)

        loop.add_reader(number, hear)
        try:
            await ended
        finally:
            if not ended.done() or ended.cancelled():
                loop.remove_reader(number)

    def _hear(self, payload: bytes) -> None:
        """Whatever anybody sent: at worst somebody looks in vain."""
        try:
            said = _announced.decode(payload)
        except (msgspec.DecodeError, RecursionError):
            self._offers.may_have_missed_some()
            self._tell(None)
            return
        if isinstance(said, _Announced):
            run = bytes(said.run)
            self._offers.hear(said.topics, run if self._believes(run, said.seal) else None)
            self._tell(said.topics)
        else:
            self._offers.hear(said)
            self._tell(said)

    def _believes(self, run: bytes, seal: str | None) -> bool:
        if self._secret is None or seal is None:
            return False
        return compare_digest(seal.encode(), seal_of(self._secret, run).encode())

    def _tell(self, topics: frozenset[str] | None) -> None:
        for listener in list(self._listeners):
            if topics is None or topics & listener.topics:
                listener.heard()


def seal_of(secret: str, run: bytes) -> str:
    """As the function ``tenure.sealed`` makes it. Anybody who can connect to the database can send
    hints; this takes the right to read the schema."""
    inner = sha256(secret.encode() + run).hexdigest()
    return sha256((secret + inner).encode()).hexdigest()
