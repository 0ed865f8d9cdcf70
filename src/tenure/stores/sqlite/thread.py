"""A database connection that lives in a thread of its own.

One hop per call: a whole transaction is one function run in that thread. Hopping for every
statement would cost several times the transaction itself. Reads asked for at the same time share a
hop: each answer on its own would wake the event loop while everybody wants the interpreter.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import apsw

from tenure.model.errors import StoreLost, StoreUnavailable
from tenure.stores.sqlite.database import (
    DRIVER_ERRORS,
    connect,
    migrate,
    one_view,
    patiently,
    refuse_another_schema,
    translated,
    translation,
)
from tenure.stores.sqlite.holdup import Holdup, LockWait
from tenure.stores.sqlite.on_disk import FilesOnDisk

T = TypeVar("T")


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    work: Callable[..., Any]
    arguments: tuple[object, ...]
    asked_at: float


class _Outcome(NamedTuple):
    job: _Job
    result: object
    error: BaseException | None = None


class DatabaseThread:
    """Runs functions of a connection one after another, in the order they were asked for."""

    def __init__(self, path: Path, name: str, holdup: Holdup) -> None:
        self._path = path
        self._pid = os.getpid()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = threading.Event()
        self._lock = LockWait(holdup)
        self._guard = threading.Lock()
        opened: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._serve, args=(opened,), name=f"tenure-{name}", daemon=True
        )
        self._thread.start()
        opened.result()

    @property
    def connection(self) -> apsw.Connection:
        """For building what will work in this thread; nobody may use it from another."""
        return self._connection

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """The result of ``work(*arguments)``. Cancelling the caller does not undo the work."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        if os.getpid() != self._pid:
            raise StoreUnavailable(
                f"{self._path}: this store was opened before the process forked; open it anew"
            )
        with self._guard:
            self._refuse_if_closed()
            self._jobs.put(_Job(loop, answer, work, arguments, monotonic()))
        return await answer

    def check_files(self) -> None:
        """``StoreLost``. For whoever opens a connection of its own: SQLite would begin a new log in
        the place of one that was taken away."""
        with self._guard:
            self._refuse_if_closed()
            self._files.check()

    def _refuse_if_closed(self) -> None:
        if self._closing.is_set():
            raise StoreUnavailable(f"{self._path}: this store has been closed")

    def close(self) -> None:
        """Finish what was asked for, then let go of the file."""
        if os.getpid() != self._pid:
            return  # the thread stayed with the parent
        with self._guard:
            if not self._closing.is_set():
                self._closing.set()
                self._jobs.put(None)
        self._thread.join()

    # In the thread

    def _serve(self, opened: Future[None]) -> None:
        try:
            self._open()
        except BaseException as error:  # noqa: BLE001  raised where the store is opened
            opened.set_exception(error)
            return
        self._lock.got_through()
        opened.set_result(None)
        while (job := self._jobs.get()) is not None:
            self._do(job)
        self._connection.close()

    def _open(self) -> None:
        """What is refused is let go of at once: as long as anybody has the file, nobody brings its
        log into it."""
        self._lock.begin(monotonic())
        self._connection = connect(self._path, self._lock)
        try:
            self._files = FilesOnDisk(self._path)
            with translated(self._path, self._lock):
                patiently(migrate, (self._connection, self._path), self._lock)
            self._files.used_by(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def _unwanted(self, jobs: Sequence[_Job]) -> bool:
        """Who closes waits for every answer that is owed to somebody, and for no other."""
        return self._closing.is_set() and all(job.answer.done() for job in jobs)

    def _do(self, job: _Job) -> None:
        try:
            self._lock.begin(job.asked_at, partial(self._unwanted, [job]))
            outcome = _Outcome(job, patiently(self._in_our_schema, (job,), self._lock))
            self._lock.got_through()
        except BaseException as error:  # noqa: BLE001  handed to the caller, whatever it is
            outcome = self._failed(job, error)
        _answer(job.loop, self._unless_lost([outcome]))

    def _in_our_schema(self, job: _Job) -> Any:
        """Not all work is done in transactions, which look once more."""
        refuse_another_schema(self._connection)
        return job.work(*job.arguments)

    def _unless_lost(self, outcomes: list[_Outcome]) -> list[_Outcome]:
        """A refusal is an answer too: none is given from files that nobody else sees."""
        try:
            self._files.check()
        except StoreLost as lost:
            return [_Outcome(one.job, None, lost) for one in outcomes]
        return outcomes

    def _failed(self, job: _Job, error: BaseException) -> _Outcome:
        if not isinstance(error, apsw.BusyError):
            self._lock.got_through()
        if isinstance(error, DRIVER_ERRORS):
            ours = translation(self._path, error, self._lock)
            ours.__cause__ = error
            error = ours
        return _Outcome(job, None, error)


class ReadingThread(DatabaseThread):
    """For work that only reads. What each reads is of one moment, and not before it was asked;
    whatever waits at the same time is done in one view and answered together."""

    _TOGETHER = 50

    def _do(self, job: _Job) -> None:
        jobs = [job, *self._waiting_too()]
        try:
            self._lock.begin(job.asked_at, partial(self._unwanted, jobs))
            outcomes = patiently(self._in_one_view, (jobs,), self._lock)
            self._lock.got_through()
        except BaseException as error:  # noqa: BLE001
            outcomes = [self._failed(each, error) for each in jobs]
        outcomes = self._unless_lost(outcomes)
        for loop, theirs in groupby(outcomes, key=lambda outcome: outcome.job.loop):
            _answer(loop, tuple(theirs))

    def _waiting_too(self) -> Iterator[_Job]:
        """Nobody else takes from the queue, and nothing comes after its end mark."""
        for _ in range(min(self._jobs.qsize(), self._TOGETHER - 1)):
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)
                return
            yield job

    def _in_one_view(self, jobs: list[_Job]) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        while len(outcomes) < len(jobs):
            with one_view(self._connection):
                refuse_another_schema(self._connection)
                self._read_on(jobs, outcomes)
        return outcomes

    def _read_on(self, jobs: list[_Job], outcomes: list[_Outcome]) -> None:
        """As far as this view reaches: some errors of the database end it."""
        for job in jobs[len(outcomes) :]:
            try:
                outcomes.append(_Outcome(job, job.work(*job.arguments)))
            except apsw.BusyError:
                raise
            except BaseException as error:  # noqa: BLE001
                outcomes.append(self._failed(job, error))
                if not self._connection.in_transaction:
                    return


def _answer(loop: asyncio.AbstractEventLoop, outcomes: Iterable[_Outcome]) -> None:
    def settle() -> None:
        for job, result, error in outcomes:
            if job.answer.done():
                continue  # cancelled meanwhile
            if error is None:
                job.answer.set_result(result)
            else:
                job.answer.set_exception(error)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The callers' event loop is gone, and with it everybody who could hear the answer.
        return
