"""A database connection that is used by a thread of its own.

One hop per call: a whole transaction is one function run in that thread. Hopping for every
statement would cost several times the transaction itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cached_property
from queue import SimpleQueue
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import apsw

from tenure.model.errors import StoreUnavailable
from tenure.stores.sqlite.database import (
    DRIVER_ERRORS,
    BusyWait,
    DatabaseFile,
    connect,
    one_view,
    refuse_another_schema,
    translation,
)

T = TypeVar("T")


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    work: Callable[..., Any]
    arguments: tuple[object, ...]
    asked_at: float


class DatabaseThread:
    """Runs functions one after another, in the order they were asked for. Thread and connection
    come with the first of them."""

    def __init__(
        self, file: DatabaseFile, name: str, busy_timeout_s: float, *, reads: bool = False
    ) -> None:
        """``reads``: each function only reads, and all it reads is of one moment."""
        self._file = file
        self._reads = reads
        self._busy = BusyWait(file.path, busy_timeout_s)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = threading.Event()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=f"tenure-{name}", daemon=True)

    @cached_property
    def connection(self) -> apsw.Connection:
        """For what works in this thread."""
        self._busy.begin(monotonic())
        return connect(self._file, self._busy)

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """The result of ``work(*arguments)``. Cancelling the caller does not undo the work."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._guard:
            if self._closing.is_set():
                raise StoreUnavailable(f"{self._file.path}: this store has been closed")
            if self._thread.ident is None:
                self._thread.start()
            self._jobs.put(_Job(loop, answer, work, arguments, monotonic()))
        return await answer

    def close(self) -> None:
        """Finish what was asked for, then let go of the file. May be called twice."""
        with self._guard:
            if not self._closing.is_set():
                self._closing.set()
                self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        if "connection" in self.__dict__:
            self.connection.close()

    # In the thread

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: object = None
            error: BaseException | None = None
            try:
                result = self._done(job)
            except DRIVER_ERRORS as failed:
                error = translation(self._file.path, failed)
                error.__cause__ = failed
            except BaseException as failed:  # noqa: BLE001  handed to the caller, whatever it is
                error = failed
            _answer(job, result, error)

    def _done(self, job: _Job) -> Any:
        """No answer is given from a file that other processes do not see, nor a refusal."""
        connection = self.connection
        self._busy.begin(job.asked_at, lambda: self._closing.is_set() and job.answer.done())
        try:
            return self._busy.retried(self._in_our_schema, connection, job)
        finally:
            self._file.check()

    def _in_our_schema(self, connection: apsw.Connection, job: _Job) -> Any:
        with one_view(connection) if self._reads else nullcontext():
            refuse_another_schema(connection)
            return job.work(*job.arguments)


def _answer(job: _Job, result: object, error: BaseException | None) -> None:
    def settle() -> None:
        if job.answer.done():
            return  # cancelled meanwhile
        if error is None:
            job.answer.set_result(result)
        else:
            job.answer.set_exception(error)

    with suppress(RuntimeError):  # the caller's event loop is closed
        job.loop.call_soon_threadsafe(settle)
