"""One connection to the server, and the session of a call on it: named statements, alone or several
in one trip."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Self, TypeVar

import psycopg
from psycopg import AsyncRawCursor
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus

from tenure.model.errors import StoreIncompatible, StoreUnavailable
from tenure.ports.environment import Clock
from tenure.stores.postgres.statements import SQL, Call

Row = tuple[Any, ...]
T = TypeVar("T")

_CLOCK_TRUSTED_S = 10.0
"""Meanwhile the server's clock may be set, or another server take over."""
_CLOCK_HEARD_WITHIN_S = 0.5
"""The error of the server's time: at most the duration of a call."""
CANCEL_TIMEOUT_S = 1.0
"""For the server's reply to a cancel request."""
_WAITING_FOR_A_REPLICA = "SyncRepWaitForLSN"
"""Identifies the warning by its function in the server: the text depends on the language."""

PAUSES_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Before each attempt to write a row that another transaction is writing; the store's own
transactions are shorter."""
SHORT_PAUSES_S = PAUSES_S[:5]
"""For a call with several rows: the others wait for its answer."""


class Busy(Exception):
    """Another transaction is writing the row."""


def pauses_for(many: int) -> tuple[float, ...]:
    return PAUSES_S if many == 1 else SHORT_PAUSES_S


def locked(what: str, place: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{what} is locked in {place} by another transaction; nothing was written, send it again"
    )


async def until_free(attempt: Callable[[], Awaitable[T]], locked: StoreUnavailable) -> T:
    """The result of ``attempt``, repeated while it raises ``Busy``; at last ``locked``."""
    for seconds in PAUSES_S:
        await pause(seconds)
        with suppress(Busy):
            return await attempt()
    raise locked


async def pause(seconds: float) -> None:
    if seconds:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_future()


class Connection(psycopg.AsyncConnection[Row]):
    unconfirmed = False
    """A commit that was canceled while it waited for its replica has succeeded on this server, and
    perhaps on no other: the server sends a warning."""
    stopped = False
    """A cancel request was sent, which might stop the next call."""

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """``ready`` is awaited with the new connection; ``failed`` is called with the error, which
        a pool that connects in the background does not report."""
        ready: Callable[[Connection], Awaitable[None]] = kwargs.pop("ready")
        failed: Callable[[BaseException], None] = kwargs.pop("failed")
        try:
            connection = await super().connect(
                conninfo, autocommit=True, cursor_factory=AsyncRawCursor, **kwargs
            )
            connection.prepared_max = 200  # more than there are frequent statements
            connection.add_notice_handler(connection._hear)
            try:
                await ready(connection)
            except BaseException:
                await connection.close()
                raise
        except BaseException as error:
            failed(error)
            raise
        return connection

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ASYNC109
        """Called by the driver when a call is cancelled or takes too long. Cuts the connection if
        the server does not reply."""
        self.stopped = True
        try:
            await super().cancel_safe(timeout=min(timeout, CANCEL_TIMEOUT_S))
        except (psycopg.Error, OSError):
            self.cut()

    def cut(self) -> None:
        """Readers get the end of the stream."""
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    @property
    def is_idle(self) -> bool:
        return self.info.transaction_status == TransactionStatus.IDLE

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come: on an idle connection that would be its end."""
        if self.closed:
            return False
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return not poll.poll(0)

    def _hear(self, notice: Diagnostic) -> None:
        if notice.source_function == _WAITING_FOR_A_REPLICA:
            self.unconfirmed = True


class ServerClock:
    """The server's time from a recent answer plus the time passed since, which saves a trip. It is
    never ahead. ``given``: a clock of a test in place of the server's."""

    def __init__(self, given: Clock | None = None) -> None:
        self._given = given
        self._heard: datetime | None = None
        self._heard_at = 0.0

    def heard(self, at: datetime, sent_at: float) -> datetime:
        """``sent_at`` by ``monotonic``. Not kept for later if the answer took too long."""
        now = monotonic()
        if now - sent_at <= _CLOCK_HEARD_WITHIN_S:
            self._heard, self._heard_at = at, now
        return at if self._given is None else self._given.now()

    def now(self) -> datetime | None:
        """``None``: ask the server."""
        if self._given is not None:
            return self._given.now()
        passed = monotonic() - self._heard_at
        if self._heard is None or passed > _CLOCK_TRUSTED_S:
            return None
        return self._heard + timedelta(seconds=passed)


class Session:
    """A connection for one call of the store."""

    def __init__(self, connection: Connection, clock: ServerClock) -> None:
        self.connection = connection
        self._clock = clock
        self._sent_at = 0.0

    async def all(self, name: str, *values: Any) -> list[Row]:
        self._sent_at = monotonic()
        cursor = await self.connection.execute(SQL[name], values, prepare=True)
        return await _rows(cursor)

    async def first(self, name: str, *values: Any) -> Row | None:
        found = await self.all(name, *values)
        return found[0] if found else None

    async def one(self, name: str, *values: Any) -> Row:
        """The row. ``StoreIncompatible`` if there is none."""
        row = await self.first(name, *values)
        if row is None:
            raise StoreIncompatible(f"the database lacks a row that {name} needs")
        return row

    async def count(self, name: str, *values: Any) -> int:
        """The number of rows changed."""
        cursor = await self.connection.execute(SQL[name], values, prepare=True)
        return cursor.rowcount

    async def together(self, *calls: Call) -> list[list[Row]]:
        """All in one trip; and in one transaction, if none of them begins one."""
        self._sent_at = monotonic()
        connection = self.connection
        async with connection.pipeline():
            cursors = [
                await connection.execute(SQL[name], values, prepare=True) for name, *values in calls
            ]
        return [await _rows(cursor) for cursor in cursors]

    async def carefully(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """A statement built from fixed fragments, with bound values, and planned without sequential
        scans."""
        async with self.connection.pipeline():
            await self.connection.execute(SQL["carefully"], prepare=True)
            cursor = await self.connection.execute(sql, values)
        return await _rows(cursor)

    @asynccontextmanager
    async def undone_on_error(self) -> AsyncIterator[None]:
        """Around a transaction: rolls it back."""
        try:
            yield
        except BaseException:
            if not (self.connection.closed or self.connection.is_idle):
                await self.connection.rollback()
            raise

    async def confirm(self) -> None:
        """Wait until everything read is durable, also on a replica, before answering that it was
        done already."""
        await self.all("confirm")

    async def now(self) -> datetime:
        """The server's time."""
        now = self._clock.now()
        if now is not None:
            return now
        heard: datetime
        (heard,) = await self.one("clock")
        return self.heard(heard)

    def heard(self, at: datetime) -> datetime:
        """The server's time, from the answer to the last statement."""
        return self._clock.heard(at, self._sent_at)


async def _rows(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    return [] if cursor.rownumber is None else await cursor.fetchall()
