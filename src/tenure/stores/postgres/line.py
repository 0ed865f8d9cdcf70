"""A connection, as this store needs it.

*Confirmed.* A commit that is stopped while it waits for its replica, by us or by a person, succeeds
all the same: it is on the disk of this server, and perhaps on no other. The server says so in a
warning. Whoever took that for an acknowledgement would lose it with the server.

*Quick.* What every run waits for is asked without the driver's cursors, timers and registrations:
for a lone write they take longer than all the rest that we do. Such a question is

*sent*      at once, or as far as the system takes it; the loop tells when it takes more.
*waited for*  the loop tells when there is something to read; all that came is read then.
*answered*  or the connection has ended: whoever asked is woken up.
*given up*  whoever asked was cancelled. Nobody knows what became of it: the connection ends too.

The loop goes on watching a connection that is idle, so that it need not be told to each time. If
one says something that nobody asked for, it is watched no longer: who takes it next sees that, and
lets it go. The loop knows it by a weak reference: a connection that everybody has dropped ends.

*To the end.* What came over TLS older versions of libpq read as far as they have room for it. The
rest is no longer in the socket, so nobody tells that it is there: who reads looks again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import ReferenceType, ref

import psycopg
from psycopg.abc import PQGen
from psycopg.abc import Transformer as Form
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import Diagnostic, InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait, wait_async

from tenure.stores.postgres.arrays import ArrayDumper

Row = tuple[Any, ...]
Question = tuple[str, Sequence[Any]]
"""A statement and its values."""
T = TypeVar("T")

_WAITING_FOR_A_REPLICA = "SyncRepWaitForLSN"
"""Where in the server the warning comes from: its words are in whatever language it speaks."""
LOOKS_AGAIN = 0 if psycopg.pq.version() >= 180_000 else 32
"""Over TLS, more than the records that may have come at once: nothing tells how much is left."""
_ANSWERS = frozenset(
    {
        ExecStatus.COMMAND_OK,
        ExecStatus.TUPLES_OK,
        ExecStatus.EMPTY_QUERY,
        ExecStatus.FATAL_ERROR,
        ExecStatus.PIPELINE_ABORTED,
    }
)


class Line(psycopg.AsyncConnection[Row]):
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
        self.adapters.register_dumper(list, ArrayDumper)
        self.add_notice_handler(partial(_hear, ref(self)))
        self._statements: dict[tuple[str, tuple[int, ...]], bytes] = {}
        """The names of those that the server has been told to prepare."""
        self._named = 0
        self._asked: asyncio.Future[list[PGresult]] | None = None
        self._came: list[PGresult] = []

    async def ask(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """A statement that is asked again and again, alone in its trip and its transaction."""
        (rows,) = await self.ask_in_turn([(sql, values)])
        return rows

    async def ask_in_turn(self, questions: Iterable[Question]) -> list[list[Row]]:
        """Several in one trip and one transaction. Each is on its way before the next is looked at:
        if they are made one by one, the server works on one while the next is made."""
        self._watch(asyncio.get_running_loop())
        self.pgconn.enter_pipeline_mode()
        forms: list[Form | None] = []
        prepared = len(self._statements)
        try:
            for sql, values in questions:
                forms += self._send(sql, values)
                self.pgconn.flush()
            self.pgconn.pipeline_sync()
        except BaseException:
            if forms or self.broken:
                await self.close()  # and what was sent is undone
            else:
                self.pgconn.exit_pipeline_mode()
            raise
        results = await self._results()
        self.pgconn.exit_pipeline_mode()
        for result in results:
            if result.status == ExecStatus.FATAL_ERROR:
                error = error_from_result(result)
                if isinstance(error, InvalidSqlStatementName):
                    prepared = 0  # somebody had it forget them
                for key in list(self._statements)[prepared:]:
                    del self._statements[key]  # whether the server has it is not known
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
        if self.prepare_threshold is None:
            self.pgconn.send_query_params(
                sql.encode(), given, param_types=form.types, param_formats=form.formats
            )
            return [form]
        key = sql, form.types or ()
        name = self._statements.get(key)
        new = name is None
        if name is None:
            self._named += 1
            name = self._statements[key] = f"tenure_{self._named}".encode()
            self.pgconn.send_prepare(name, sql.encode(), param_types=form.types)
        self.pgconn.send_query_prepared(name, given, param_formats=form.formats)
        return [None, form] if new else [form]

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

    async def rollback(self) -> None:
        """After which the driver has the server forget all that was prepared."""
        self._statements.clear()
        await super().rollback()

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

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watching is not loop:
            self._watch_no_more()
            self._number = self.fileno()
            loop.add_reader(self._number, _read, ref(self))
            self._watching = loop

    def _watch_no_more(self) -> None:
        loop, self._watching = self._watching, None
        if loop is not None:
            _forget(loop, self._number)

    def _send_more(self) -> None:
        try:
            if not self.pgconn.flush() and self._watching is not None:
                self._watching.remove_writer(self._number)
        except Exception as error:  # noqa: BLE001  (as in ``_read``)
            self._fail(error)

    def _collect(self) -> bool:
        """Whether all has come."""
        ends = 0
        while not self.pgconn.is_busy():
            result = self.pgconn.get_result()
            if result is None:  # the end of one statement
                ends += 1
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return True
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


def _read(watched: ReferenceType[Line]) -> None:
    line = watched()
    if line is None:
        return
    if line._asked is None:
        line._watch_no_more()
        return
    try:
        line.pgconn.consume_input()
        whole = line._collect()
        for _ in range(LOOKS_AGAIN if line._encrypted else 0):
            if whole:
                break
            line.pgconn.consume_input()
            whole = line._collect()
    except Exception as error:  # noqa: BLE001  (raised where somebody waits for it)
        line._fail(error)
        return
    if whole and not line._asked.done():
        line._asked.set_result(line._came)


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


def _rows(form: Form, result: PGresult) -> list[Row]:
    form.set_pgresult(result)
    return form.load_rows(0, result.ntuples, tuple)


def _hear(line: ReferenceType[Line], notice: Diagnostic) -> None:
    told = line()
    if told is not None and notice.source_function == _WAITING_FOR_A_REPLICA:
        told.unconfirmed = True
