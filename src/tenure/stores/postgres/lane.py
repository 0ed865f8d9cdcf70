"""Connections for one purpose, in one event loop: made when they are needed, and kept.

One that is being made outlives who asked for it. To make one takes several trips; if each asker who
runs out of patience took his along, nobody would ever have one on a slow network. It is

*made for*  whoever asked, and is his when it is there;
*left*      he was cancelled, or got one that somebody else no longer needed, which was sooner:
            whoever asks next waits for it, instead of beginning again;
*idle*      it is there, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import psycopg

from tenure.stores.postgres.line import Line

Connect = Callable[[], Coroutine[Any, Any, Line]]


class Lane:
    def __init__(self, size: int) -> None:
        self.size = size
        self.free = asyncio.Semaphore(size)
        self.idle: list[Line] = []
        self._left: set[asyncio.Task[Line]] = set()
        self._wanted: dict[asyncio.Future[Line], asyncio.Task[Line]] = {}
        """By whoever waits for one that is being made for him."""
        self._closed = False

    def take(self) -> Line | None:
        while self.idle:
            try:
                line = self.idle.pop()
            except IndexError:
                break  # the store is being closed, by another thread
            if _is_quiet(line):
                return line
            line.hang_up()
        return None

    async def make(self, connect: Connect) -> Line:
        """A new one, or one that is given back meanwhile."""
        making = self._left.pop() if self._left else asyncio.create_task(connect())
        given: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        self._wanted[given] = making
        try:
            await asyncio.wait((making, given), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if given.done():
                self.keep(given.result())
            else:
                self._leave(making)
            raise
        finally:
            self._wanted.pop(given, None)
        if given.done():
            return given.result()
        if making.cancelled():
            raise psycopg.OperationalError("this store has been closed")
        return making.result()

    def keep(self, line: Line) -> None:
        if self._wanted:
            given = next(iter(self._wanted))
            self._leave(self._wanted.pop(given))
            given.set_result(line)
            return
        self.idle.append(line)
        if self._closed:  # looked at last: another thread may just have closed what was idle
            self._hang_up()

    def _leave(self, making: asyncio.Task[Line]) -> None:
        self._left.add(making)
        making.add_done_callback(self._made)

    def close(self) -> None:
        """From any thread."""
        self._closed = True
        self._hang_up()
        for making in list(self._left):
            with suppress(RuntimeError):  # its loop has ended
                making.get_loop().call_soon_threadsafe(making.cancel)

    def _made(self, making: asyncio.Task[Line]) -> None:
        if making not in self._left:
            return  # somebody waits for it
        self._left.discard(making)
        if not making.cancelled() and making.exception() is None:
            self.keep(making.result())

    def _hang_up(self) -> None:
        while (line := self.take()) is not None:
            line.hang_up()


def _is_quiet(line: Line) -> bool:
    """An idle connection has nothing to say, unless that it has ended."""
    if line.closed:
        return False
    poll = select.poll()
    poll.register(line.fileno(), select.POLLIN)
    return not poll.poll(0)
