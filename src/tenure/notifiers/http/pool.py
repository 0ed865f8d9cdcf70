"""The connections attempts share, and the places there are for them.

A place is held by exactly one of these, and counts in all and for its receiver:

- a task that opens a connection or has one that was given to it; it gives back either the
  connection or, if none came about, the place;
- an idle connection. Whoever sends to the same receiver may have it. If all places are taken, the
  one that is idle for longest makes room for another receiver.

Who finds no place waits. Receivers get their turns one after the other, and those who wait for the
same one in the order they came: one that hangs, however many wait for it, is passed over by those
behind it. What a waiting task is granted is its own from that moment; if it was cancelled in the
same moment, it hands the grant on.

So while anybody waits, no place lies idle that they could use.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tenure.notifiers.http.connection import Connection, State
from tenure.notifiers.http.failures import NoLongerSending, Unanswered
from tenure.notifiers.http.target import Origin

IDLE = 4.0
"""Seconds. Below the five after which common servers close an idle connection: a POST that crosses
such a close is lost, and only the relay may send it again."""
_ENDING = "not sent: this process is about to end"
_LET_GO = 1.0
"""Seconds for connections to end; each takes less."""


class _Receiver:
    __slots__ = ("idle", "places", "waiting")

    def __init__(self) -> None:
        self.places = 0
        self.idle: list[Connection] = []
        """The latest last."""
        self.waiting: deque[asyncio.Future[Connection | None]] = deque()
        """Each gets a connection, or a place to open one."""


class Pool:
    """At most ``places`` connections, of which ``per_receiver`` go to one. Belongs to one loop."""

    def __init__(
        self, open_one: Callable[[Origin], Awaitable[Connection]], places: int, per_receiver: int
    ) -> None:
        self._open_one = open_one
        self._free = places
        self._per_receiver = per_receiver
        self._receivers: dict[Origin, _Receiver] = {}
        self._queue: dict[Origin, None] = {}
        """Those somebody waits for, in turn."""
        self._alive: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, origin: Origin) -> Connection | None:
        """An idle connection, if there is one. To be given back."""
        receiver = self._receivers.get(origin)
        if receiver is None or not receiver.idle:
            return None
        oldest = self._loop.time() - IDLE
        while receiver.idle:
            connection = receiver.idle.pop()
            if connection.state is State.IDLE and connection.idle_since > oldest:
                return connection
            connection.close()
            self._leave(origin)
        return None

    async def obtain(self, origin: Origin) -> Connection:
        """A connection, as soon as there is a place for it. To be given back."""
        connection = self.take(origin)
        if connection is None and not self._enter(origin):
            connection = await self._turn(origin)
        if connection is not None and connection.state is State.IDLE:
            return connection
        return await self._open(origin)  # perhaps in place of one that ended since it was granted

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """After an answer, or without one: what still waits for an answer is closed."""
        if connection.state is State.IDLE and not self._closed:
            connection.idle_since = self._loop.time()
            self._receivers[origin].idle.append(connection)
            if self._sweeping is None:
                self._sweeping = self._loop.call_later(IDLE, self._sweep)
        else:
            connection.close()
            self._leave(origin)
        if self._queue:
            self._grant()

    async def close(self) -> None:
        """End all connections: attempts under way fail, nobody waits any more."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for receiver in self._receivers.values():
            for turn in receiver.waiting:
                if not turn.done():
                    turn.set_exception(NoLongerSending(_ENDING))
        lost = [connection.lost for connection in self._alive]
        for connection in list(self._alive):
            connection.close()
        if lost:
            await asyncio.wait(lost, timeout=_LET_GO)

    # Places

    def _enter(self, origin: Origin) -> bool:
        """Take a place, if there is one."""
        receiver = self._receivers.get(origin)
        if receiver is not None and receiver.places >= self._per_receiver:
            return False
        if not self._free and not self._make_room():
            return False
        self._receivers.setdefault(origin, _Receiver()).places += 1
        self._free -= 1
        return True

    def _leave(self, origin: Origin) -> None:
        receiver = self._receivers[origin]
        receiver.places -= 1
        self._free += 1
        if not (receiver.places or receiver.waiting):
            del self._receivers[origin]

    def _make_room(self) -> bool:
        """At the cost of the connection that is idle for longest."""
        idle = [origin for origin, receiver in self._receivers.items() if receiver.idle]
        if not idle:
            return False
        self._drop(min(idle, key=lambda origin: self._receivers[origin].idle[0].idle_since))
        return True

    def _drop(self, origin: Origin) -> None:
        self._receivers[origin].idle.pop(0).close()
        self._leave(origin)

    def _sweep(self) -> None:
        """Idle connections that nobody wanted, and be back for the next."""
        self._sweeping = None
        oldest = self._loop.time() - IDLE
        left: list[float] = []
        for origin, receiver in list(self._receivers.items()):
            while receiver.idle and receiver.idle[0].idle_since <= oldest:
                self._drop(origin)
            left += [connection.idle_since for connection in receiver.idle[:1]]
        if left:
            self._sweeping = self._loop.call_at(min(left) + IDLE, self._sweep)

    async def _open(self, origin: Origin) -> Connection:
        """In a place that we hold."""
        try:
            self._check_open()
            connection = await self._open_one(origin)
        except BaseException:
            self._hand_on(origin, None)
            raise
        self._alive.add(connection)
        connection.lost.add_done_callback(lambda _: self._alive.discard(connection))
        if connection.state is not State.IDLE or self._closed:
            self.give_back(origin, connection)
            self._check_open()
            raise Unanswered
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise NoLongerSending(_ENDING)

    # Turns

    async def _turn(self, origin: Origin) -> Connection | None:
        turn: asyncio.Future[Connection | None] = self._loop.create_future()
        receiver = self._receivers.setdefault(origin, _Receiver())
        receiver.waiting.append(turn)
        self._queue.setdefault(origin)
        try:
            return await turn
        except BaseException:
            if turn in receiver.waiting:
                self._stop_waiting(origin, turn)
            else:  # it was granted in the same moment
                self._hand_on(origin, turn.result())
            raise

    def _stop_waiting(self, origin: Origin, turn: asyncio.Future[Connection | None]) -> None:
        receiver = self._receivers[origin]
        receiver.waiting.remove(turn)
        if not receiver.waiting:
            del self._queue[origin]
            if not receiver.places:
                del self._receivers[origin]

    def _hand_on(self, origin: Origin, granted: Connection | None) -> None:
        if granted is not None:
            self.give_back(origin, granted)
            return
        self._leave(origin)
        self._grant()

    def _grant(self) -> None:
        """What was given back goes to the first in turn who can use it."""
        for origin in self._queue:
            turn = next((each for each in self._waiting(origin) if not each.done()), None)
            if turn is None:  # all were cancelled just now
                continue
            connection = self.take(origin)
            if connection is None and not self._enter(origin):
                continue
            self._stop_waiting(origin, turn)
            if self._receivers[origin].waiting:  # its next turn is after all others
                del self._queue[origin]
                self._queue[origin] = None
            turn.set_result(connection)
            return

    def _waiting(self, origin: Origin) -> deque[asyncio.Future[Connection | None]]:
        return self._receivers[origin].waiting
