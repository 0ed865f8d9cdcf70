"""One connection, for one call of the store: named statements, alone or several in one trip."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from time import monotonic
from typing import Any

import psycopg

from tenure.model.errors import StoreIncompatible
from tenure.stores.postgres.line import Line, Question
from tenure.stores.postgres.server_clock import ServerClock
from tenure.stores.postgres.statements import SQL
from tenure.stores.postgres.watched import Row

Call = tuple[str | Any, ...]
"""A statement's name and its values."""


class Session:
    def __init__(self, connection: Line, clock: ServerClock) -> None:
        self.connection = connection
        self._clock = clock
        self._sent_at = 0.0

    async def all(self, name: str, *values: Any) -> list[Row]:
        return await self.built(SQL[name], values)

    async def first(self, name: str, *values: Any) -> Row | None:
        found = await self.built(SQL[name], values)
        return found[0] if found else None

    async def one(self, name: str, *values: Any) -> Row:
        """For a row that is there, or this database is not ours."""
        row = await self.first(name, *values)
        if row is None:
            raise StoreIncompatible(f"the database lacks a row that {name} needs")
        return row

    async def count(self, name: str, *values: Any) -> int:
        """How many rows it changed. (The driver, which knows, would name what it prepares as it
        does in every process: see ``line``.)"""
        cursor = await self.connection.execute(SQL[name], values, prepare=False)
        return cursor.rowcount

    async def built(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """A statement put together from fixed fragments; values are always bound."""
        self._sent_at = monotonic()
        return await self.connection.ask(sql, values)

    async def carefully(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """As ``built``, with no table read as a whole."""
        parts = [[_question(("carefully",)), (sql, values)]]
        return (await self.connection.ask_in_turn(parts))[-1]

    async def together(self, *calls: Call) -> list[list[Row]]:
        """All in one trip; if none of them begins a transaction, all in one."""
        self._sent_at = monotonic()
        return await self.connection.ask_in_turn([[_question(call) for call in calls]])

    async def in_turn(self, calls: Iterable[Call]) -> list[list[Row]]:
        """As ``together``, in a transaction; if they are made one by one, the server works on one
        while the next is made. Whoever stops in between keeps nothing locked for long."""
        self._sent_at = monotonic()
        return (await self.connection.ask_in_turn(_in_transaction(calls)))[len(_FIRST) : -1]

    @asynccontextmanager
    async def undone_on_error(self) -> AsyncIterator[None]:
        """Around a transaction: what was begun and not committed is rolled back."""
        try:
            yield
        except BaseException:
            if self.connection.pgconn.transaction_status in _OPEN and not self.connection.closed:
                await self.connection.rollback()
            raise

    async def confirm(self) -> None:
        """That what was read lasts as long as what is written, before somebody is told that it was
        done already: perhaps no replica has it yet."""
        await self.all("confirm")

    async def now(self) -> datetime:
        """The server's time: as heard a moment ago, or asked for."""
        now = self._clock.now()
        if now is not None:
            return now
        heard: datetime
        (heard,) = await self.one("clock")
        self._clock.heard(heard, self._sent_at, asked=True)
        return heard

    def heard(self, at: datetime) -> None:
        """In the answer to what was sent last."""
        self._clock.heard(at, self._sent_at)


_OPEN = (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR)

_FIRST: tuple[Call, ...] = (("begin",), ("carefully",))


def _in_transaction(calls: Iterable[Call]) -> Iterator[list[Question]]:
    """Each on its own way to the server, the first with the words that begin it."""
    before: tuple[Call, ...] = _FIRST
    for call in calls:
        yield [_question(each) for each in (*before, call)]
        before = ()
    if not before:
        yield [_question(("commit",))]


def _question(call: Call) -> Question:
    name, *values = call
    return SQL[name], values
