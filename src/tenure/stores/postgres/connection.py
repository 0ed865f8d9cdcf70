"""One connection to the server, and what a call does with it: named statements, alone or several in
one trip."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Self

import psycopg
from psycopg import AsyncRawCursor
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus

from tenure.model.errors import StoreIncompatible, StoreUnavailable
from tenure.ports.environment import Clock
from tenure.stores.postgres.statements import SQL, Call

Row = tuple[Any, ...]

_CLOCK_TRUSTED_S = 10.0
"""A server's clock may be set, or another server answer, while it is not asked."""
_CLOCK_HEARD_WITHIN_S = 0.5
"""From sending to reading: by so much may what was heard be behind."""
CANCEL_TIMEOUT_S = 1.0
"""A server that was asked to stop a statement has so long to say that it heard."""
_WAITING_FOR_A_REPLICA = "SyncRepWaitForLSN"
"""Where in the server the warning comes from: its words are in whatever language it speaks."""

PAUSES_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Before each attempt to write a run that another transaction is writing. One that holds it for
longer is no writer of ours."""
SHORT_PAUSES_S = PAUSES_S[:5]
"""If others are asked for in the same call: they wait for the answer. What is still locked then is
told apart, to be sent again."""


class Busy(Exception):
    """Another transaction is writing the row."""


def pauses_for(many: int) -> tuple[float, ...]:
    return PAUSES_S if many == 1 else SHORT_PAUSES_S


def locked(what: str, place: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{what} is locked in {place} by another transaction; nothing was written, send it again"
    )


async def pause(seconds: float) -> None:
    if seconds:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_future()


class Connection(psycopg.AsyncConnection[Row]):
    unconfirmed = False
    """A commit that was stopped while it waited for its replica succeeds all the same: it is on the
    disk of this server, and perhaps on no other. The server says so in a warning."""
    stopped = False
    """It was told to stop, and may hear of that a moment later, in another call."""

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """``ready`` is awaited with the new connection; ``failed`` is told why there is none: a
        pool connects in the background, and would keep the reason to itself."""
        ready: Callable[[Connection], Awaitable[None]] = kwargs.pop("ready")
        failed: Callable[[BaseException], None] = kwargs.pop("failed")
        try:
            connection = await super().connect(
                conninfo, autocommit=True, cursor_factory=AsyncRawCursor, **kwargs
            )
            connection.prepared_max = 200  # more than there are that every run needs
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
        """Asked for by the driver when a call is cancelled or takes too long. A server that says
        nothing is not waited for: then the connection ends."""
        self.stopped = True
        try:
            await super().cancel_safe(timeout=min(timeout, CANCEL_TIMEOUT_S))
        except (psycopg.Error, OSError):
            self.cut()

    def cut(self) -> None:
        """Whatever waits for something to come reads the end of it."""
        with (
            suppress(psycopg.Error, OSError),
            socket.socket(fileno=os.dup(self.fileno())) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)

    @property
    def is_idle(self) -> bool:
        return self.info.transaction_status == TransactionStatus.IDLE

    @property
    def is_quiet(self) -> bool:
        """An idle connection has nothing to say, unless that it has ended."""
        if self.closed:
            return False
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return not poll.poll(0)

    def _hear(self, notice: Diagnostic) -> None:
        if notice.source_function == _WAITING_FOR_A_REPLICA:
            self.unconfirmed = True


class ServerClock:
    """The server's time as heard in an answer a moment ago, plus what has passed here since: no
    further trip is needed to learn it. It is behind by an answer's way, never ahead.

    ``given``: a clock that a test has put in the place of the server's."""

    def __init__(self, given: Clock | None = None) -> None:
        self._given = given
        self._heard: datetime | None = None
        self._heard_at = 0.0

    def heard(self, at: datetime, sent_at: float) -> None:
        """``sent_at`` by ``monotonic``. If that took too long, what was heard before stays."""
        now = monotonic()
        if now - sent_at <= _CLOCK_HEARD_WITHIN_S:
            self._heard, self._heard_at = at, now

    def now(self) -> datetime | None:
        """``None``: ask again."""
        if self._given is not None:
            return self._given.now()
        passed = monotonic() - self._heard_at
        if self._heard is None or passed > _CLOCK_TRUSTED_S:
            return None
        return self._heard + timedelta(seconds=passed)


class Session:
    """One connection, for one call of the store: named statements, alone or several in a trip."""

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
        """For a row that is there, or this database is not ours."""
        row = await self.first(name, *values)
        if row is None:
            raise StoreIncompatible(f"the database lacks a row that {name} needs")
        return row

    async def count(self, name: str, *values: Any) -> int:
        """How many rows it changed."""
        cursor = await self.connection.execute(SQL[name], values, prepare=True)
        return cursor.rowcount

    async def together(self, *calls: Call) -> list[list[Row]]:
        """All in one trip; if none of them begins a transaction, all in one."""
        self._sent_at = monotonic()
        connection = self.connection
        async with connection.pipeline():
            cursors = [
                await connection.execute(SQL[name], values, prepare=True) for name, *values in calls
            ]
        return [await _rows(cursor) for cursor in cursors]

    async def carefully(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """A statement put together from fixed fragments, values always bound, with no table read as
        a whole."""
        async with self.connection.pipeline():
            await self.connection.execute(SQL["carefully"], prepare=True)
            cursor = await self.connection.execute(sql, values)
        return await _rows(cursor)

    @asynccontextmanager
    async def undone_on_error(self) -> AsyncIterator[None]:
        """Around a transaction: what was begun and not committed is rolled back."""
        try:
            yield
        except BaseException:
            if not (self.connection.closed or self.connection.is_idle):
                await self.connection.rollback()
            raise

    async def confirm(self) -> None:
        """That what was read lasts as long as what is written, before a caller is told that it was
        done already: perhaps no replica has it yet."""
        await self.all("confirm")

    async def now(self) -> datetime:
        """The server's time: as heard a moment ago, or asked for."""
        now = self._clock.now()
        if now is not None:
            return now
        heard: datetime
        (heard,) = await self.one("clock")
        self.heard(heard)
        return heard

    def heard(self, at: datetime) -> None:
        """In the answer to what was sent last."""
        self._clock.heard(at, self._sent_at)


async def _rows(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    return [] if cursor.rownumber is None else await cursor.fetchall()
