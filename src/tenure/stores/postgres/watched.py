"""A connection that says what it is, and ends when it should.

*Confirmed.* A commit that is stopped while it waits for its replica, by us or by a person, succeeds
all the same: it is on the disk of this server, and perhaps on no other. The server says so in a
warning. Whoever took that for an acknowledgement would lose it with the server.

*Watched.* The loop goes on watching a connection that is idle, so that it need not be told to each
time. If one says something that nobody asked for, it is watched no longer: who takes it next sees
that, and lets it go. The loop knows it by a weak reference: a connection that everybody has dropped
ends.

*To the end.* What came over TLS older versions of libpq read as far as they have room for it. The
rest is no longer in the socket, so nobody tells that it is there: who reads looks again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import ReferenceType, ref

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.waiting import Ready, Wait, wait_async

Row = tuple[Any, ...]
T = TypeVar("T")

_WAITING_FOR_A_REPLICA = "SyncRepWaitForLSN"
"""Where in the server the warning comes from: its words are in whatever language it speaks."""
LOOKS_AGAIN = 0 if psycopg.pq.version() >= 180_000 else 32
"""Over TLS, more than the records that may have come at once: nothing tells how much is left."""


class WatchedConnection(psycopg.AsyncConnection[Row]):
    unconfirmed = False
    """Something that was written on it may be lost with its server."""
    _closed = True  # while it is being made

    def __init__(self, pgconn: PGconn) -> None:
        self._watching: asyncio.AbstractEventLoop | None = None
        self._number = -1
        """Of its socket, while it is watched."""
        self._pid = os.getpid()
        self._encrypted = pgconn.ssl_in_use
        super().__init__(pgconn)
        self.add_notice_handler(partial(_hear, ref(self)))

    def readable(self) -> None:
        """Something has come. Called by the loop, while it watches."""
        self._watch_no_more()

    async def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        """The driver watches the socket itself, and not any longer than it waits. Cancelled, it
        would ask the server to stop, and wait for that: of a server that says nothing, ten
        seconds."""
        self._watch_no_more()
        if self._encrypted:
            gen = _looking_again(gen)
        try:
            return await wait_async(gen, self.pgconn.socket, *args, **more)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.hang_up()
            raise

    async def close(self) -> None:
        self.hang_up()

    def __del__(self, *as_the_drivers: Any) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        try:
            super().__del__(*as_the_drivers)  # warns
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        """From any thread, also when its loop has ended. A loop that goes on in another thread is
        not meddled with: it lets go by itself, in a moment. In a process that was forked all of
        this is the parent's."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        loop, self._watching = self._watching, None
        if loop is None or loop is asyncio._get_running_loop() or not loop.is_running():
            _let_go(loop, self._number, self.pgconn)
            return
        with suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(_let_go, loop, self._number, self.pgconn)

    def cut(self) -> None:
        """Whoever waits for something to come reads the end of it at once, and lets go."""
        with (
            suppress(psycopg.Error, OSError),
            socket.socket(fileno=os.dup(self.fileno())) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watching is not loop:
            self._watch_no_more()
            self._number = self.fileno()
            loop.add_reader(self._number, _tell, ref(self))
            self._watching = loop

    def _watch_no_more(self) -> None:
        loop, self._watching = self._watching, None
        if loop is not None:
            _forget(loop, self._number)


def _tell(watched: ReferenceType[WatchedConnection]) -> None:
    connection = watched()
    if connection is not None:
        connection.readable()


def _looking_again(gen: PQGen[T]) -> PQGen[T]:
    """What the driver does when there is something to read it does a few times more."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            wanted = gen.send(ready)
            for _ in range(LOOKS_AGAIN if ready & Ready.R else 0):
                if not wanted & Wait.R:
                    break
                wanted = gen.send(Ready.R)
    except StopIteration as end:
        answer: T = end.value
        return answer


def _forget(loop: asyncio.AbstractEventLoop, number: int) -> None:
    for forget in (loop.remove_writer, loop.remove_reader):
        with suppress(OSError):  # the driver may have closed the socket
            forget(number)


def _let_go(loop: asyncio.AbstractEventLoop | None, number: int, pgconn: PGconn) -> None:
    if loop is not None:
        _forget(loop, number)  # before the number is somebody else's
    pgconn.finish()


def _hear(watched: ReferenceType[WatchedConnection], notice: Diagnostic) -> None:
    told = watched()
    if told is not None and notice.source_function == _WAITING_FOR_A_REPLICA:
        told.unconfirmed = True
