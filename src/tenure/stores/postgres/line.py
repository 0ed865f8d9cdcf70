"""A connection, as this store needs it: quick.

What every run waits for is asked without the driver's cursors, timers and registrations: for a lone
write they take longer than all the rest that we do. Such a question is

*sent*      at once, or as far as the system takes it; the loop tells when it takes more.
*waited for*  the loop tells when there is something to read; all that came is read then.
*answered*  or the connection has ended: whoever asked is woken up.
*given up*  whoever asked was cancelled. Nobody knows what became of it: the connection ends too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import psycopg
from psycopg.abc import Transformer as Form
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from tenure.stores.postgres.arrays import ArrayDumper
from tenure.stores.postgres.statements import SQL
from tenure.stores.postgres.watched import LOOKS_AGAIN, Row, WatchedConnection

Question = tuple[str, Sequence[Any]]
"""A statement and its values."""

_MOST_PREPARED = 200
"""Statements on one connection: more than there are that every run needs. Lists have many shapes,
and the server keeps a plan for each."""
_NEVER_PREPARED = SQL["begin"]
"""What a server has prepared it may forget. If it forgot this, of all things, what follows would
not be undone with what was refused."""
_ANSWERS = frozenset(
    {
        ExecStatus.COMMAND_OK,
        ExecStatus.TUPLES_OK,
        ExecStatus.EMPTY_QUERY,
        ExecStatus.FATAL_ERROR,
        ExecStatus.PIPELINE_ABORTED,
    }
)


class Line(WatchedConnection):
    era = 0
    """When it was made: see ``leaving``."""

    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn)
        self.adapters.register_dumper(list, ArrayDumper)
        self._statements: dict[tuple[str, tuple[int, ...]], bytes] = {}
        """The names of those that the server has been told to prepare."""
        self._named = 0
        self._asked: asyncio.Future[list[PGresult]] | None = None
        self._came: list[PGresult] = []
        self._owed = 0
        """Parts whose end has not come."""

    async def ask(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """A statement that is asked again and again, alone in its trip and its transaction."""
        (rows,) = await self.ask_in_turn([[(sql, values)]])
        return rows

    async def ask_in_turn(self, parts: Iterable[Iterable[Question]]) -> list[list[Row]]:
        """All in one trip. Each part is on its way before the next is looked at: if they are made
        one by one, the server works on one while the next is made. A part that is in no transaction
        is one by itself."""
        self._watch(asyncio.get_running_loop())
        self.pgconn.enter_pipeline_mode()
        forms: list[Form | None] = []
        prepared = len(self._statements)
        self._owed = 0
        try:
            for questions in parts:
                for sql, values in questions:
                    forms += self._send(sql, values)
                # With it they leave together: a server that has one of them and not this one would
                # hold for us what it has locked, for as long as it does not hear from us.
                self.pgconn.pipeline_sync()
                self._owed += 1
        except BaseException:
            if forms or self.broken:
                await self.close()  # and what was sent is undone
            else:
                self.pgconn.exit_pipeline_mode()
            raise
        results = await self._results() if self._owed else []
        self.pgconn.exit_pipeline_mode()
        for number, result in enumerate(results):
            if result.status == ExecStatus.FATAL_ERROR:
                error = error_from_result(result)
                if isinstance(error, InvalidSqlStatementName):
                    prepared = 0  # somebody had it forget them
                for key in list(self._statements)[prepared:]:
                    del self._statements[key]  # whether the server has it is not known
                if _was_done(results[number:]):
                    raise psycopg.OperationalError(
                        f"what was asked may or may not have been done, and part of it was: {error}"
                    ) from error
                raise error
        return [
            _rows(form, result)
            for form, result in zip(forms, results, strict=True)
            if form is not None
        ]

    def _send(self, sql: str, values: Sequence[Any]) -> list[Form | None]:
        """For each result that is owed now what reads it, if anybody wants to."""
        form: Form = Transformer.from_context(self)
        given = form.dump_sequence(values, [PyFormat.AUTO] * len(values))
        key = sql, form.types or ()
        name = self._statements.get(key)
        new = name is None
        if (
            self.prepare_threshold is None
            or (new and len(self._statements) >= _MOST_PREPARED)
            or sql == _NEVER_PREPARED
        ):
            self.pgconn.send_query_params(
                sql.encode(), given, param_types=form.types, param_formats=form.formats
            )
            return [form]
        if name is None:
            self._named += 1
            name = self._statements[key] = _name(*key, self._named)
            self.pgconn.send_prepare(name, sql.encode(), param_types=form.types)
        self.pgconn.send_query_prepared(name, given, param_formats=form.formats)
        return [None, form] if new else [form]

    async def rollback(self) -> None:
        """After which the driver has the server forget all that was prepared."""
        self._statements.clear()
        await super().rollback()

    def readable(self) -> None:
        if self._asked is None:
            super().readable()
            return
        try:
            self.pgconn.consume_input()
            whole = self._collect()
            for _ in range(LOOKS_AGAIN if self._encrypted else 0):
                if whole:
                    break
                self.pgconn.consume_input()
                whole = self._collect()
        except Exception as error:  # noqa: BLE001  (raised where somebody waits for it)
            self._fail(error)
            return
        if whole and not self._asked.done():
            self._asked.set_result(self._came)

    async def _results(self) -> list[PGresult]:
        loop = asyncio.get_running_loop()
        asked = self._asked = loop.create_future()
        try:
            if self.pgconn.flush():
                loop.add_writer(self._number, self._send_more)
            results: list[PGresult] = await asked
        except BaseException:
            await self.close()  # nobody knows what is still to come
            raise
        finally:
            self._asked, self._came = None, []
        return results

    def _send_more(self) -> None:
        try:
            if not self.pgconn.flush() and self._watching is not None:
                self._watching.remove_writer(self._number)
        except Exception as error:  # noqa: BLE001  (as in ``readable``)
            self._fail(error)

    def _collect(self) -> bool:
        """Whether all has come."""
        ends = 0
        while not self.pgconn.is_busy():
            result = self.pgconn.get_result()
            if result is None:  # the end of one statement
                ends += 1
            elif result.status == ExecStatus.PIPELINE_SYNC:
                ends, self._owed = 0, self._owed - 1
                if not self._owed:
                    return True
                continue
            else:
                ends = 0
                self._came.append(result)
            if ends > 1 or (result is not None and result.status not in _ANSWERS):
                raise psycopg.OperationalError("what the server said makes no sense")
        return False

    def _fail(self, error: Exception) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(error)
        self._watch_no_more()  # now: the number of its socket may be somebody else's in a moment


def _name(sql: str, types: tuple[int, ...], number: int) -> bytes:
    """Of no other statement, whoever shares the server's connection with us: a pooler may hand it
    to somebody who asks for what he has prepared on another. ``number``: as often as it is prepared
    here, as the server may have the one of before."""
    means = sha256(f"{types} {sql}".encode()).hexdigest()[:32]
    return f"tenure_{means}_{number}".encode()


def _was_done(results: Sequence[PGresult]) -> bool:
    """Whether one after the first of them, which was refused, is of a part that was not: there was
    no transaction to undo them all."""
    return any(result.status == ExecStatus.TUPLES_OK for result in results)


def _rows(form: Form, result: PGresult) -> list[Row]:
    form.set_pgresult(result)
    return form.load_rows(0, result.ntuples, tuple)
