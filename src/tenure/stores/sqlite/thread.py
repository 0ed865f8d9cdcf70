"""A database connection that lives in a thread of its own.

One hop per call: a whole transaction is one function run in that thread. Hopping for every
statement would cost several times the transaction itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import apsw

from tenure.model.errors import StoreUnavailable
from tenure.stores.sqlite.database import (
    DRIVER_ERRORS,
    connect,
    migrate,
    one_view,
    patiently,
    translated,
    translation,
)

T = TypeVar("T")
_Job = Callable[[], None]


class DatabaseThread:
    """Runs functions of a connection one after another, in the order they were asked for."""

    def __init__(self, path: Path, name: str, *, mapped: bool = False) -> None:
        self._path = path
        self._mapped = mapped
        self._pid = os.getpid()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = threading.Event()
        # Not cut short by closing: whoever asked for a write is owed its answer.
        self._pause = threading.Event().wait
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

        def job() -> None:
            try:
                result = patiently(work, arguments, self._pause)
            except BaseException as error:  # noqa: BLE001  handed to the caller, whatever it is
                _answer(loop, answer, answer.set_exception, self._ours(error))
            else:
                _answer(loop, answer, answer.set_result, result)

        if os.getpid() != self._pid:
            raise StoreUnavailable(
                f"{self._path}: this store was opened before the process forked; open it anew"
            )
        with self._guard:
            if self._closing.is_set():
                raise StoreUnavailable(f"{self._path}: this store has been closed")
            self._jobs.put(job)
        return await answer

    async def read(self, work: Callable[..., T], *arguments: object) -> T:
        """As ``run``, with everything ``work`` reads being of one moment."""

        def in_one_view() -> T:
            with one_view(self._connection):
                return work(*arguments)

        return await self.run(in_one_view)

    def _ours(self, error: BaseException) -> BaseException:
        if not isinstance(error, DRIVER_ERRORS):
            return error
        translated = translation(self._path, error)
        translated.__cause__ = error
        return translated

    def close(self) -> None:
        """Finish what was asked for, then let go of the file."""
        if os.getpid() != self._pid:
            return  # the thread stayed with the parent
        with self._guard:
            if not self._closing.is_set():
                self._closing.set()
                self._jobs.put(None)
        self._thread.join()

    def _serve(self, opened: Future[None]) -> None:
        try:
            self._connection = connect(self._path, self._pause, mapped=self._mapped)
            with translated(self._path):
                patiently(migrate, (self._connection, self._path), self._pause)
        except BaseException as error:  # noqa: BLE001  raised where the store is opened
            opened.set_exception(error)
            return
        opened.set_result(None)
        while (job := self._jobs.get()) is not None:
            job()
        self._connection.close()


def _answer(
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[T],
    deliver: Callable[..., None],
    value: object,
) -> None:
    def set_unless_cancelled() -> None:
        if not answer.done():
            deliver(value)

    try:
        loop.call_soon_threadsafe(set_unless_cancelled)
    except RuntimeError:
        # The caller's event loop is gone, and with it everybody who could hear the answer.
        return
