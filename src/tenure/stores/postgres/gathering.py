"""Reads of single runs that are asked for at the same moment share a trip.

There is no timer. While a read is on its way, further ones gather; the next takes them all. An idle
store is asked at once. What is read is never older than the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from tenure.model.errors import RunNotFound, TenureError

T = TypeVar("T")

Read = Callable[[Sequence[str]], Awaitable[Mapping[str, T | TenureError]]]
"""Those that are there, by id; or what is to be said of one."""

_MOST = 100


class Gathering(Generic[T]):
    def __init__(self, read: Read[T], at_once: int) -> None:
        self._read = read
        self._at_once = at_once
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Asked[T]] = WeakKeyDictionary()

    async def get(self, run_id: str) -> T:
        """``RunNotFound``."""
        loop = asyncio.get_running_loop()
        asked = self._by_loop.get(loop)
        if asked is None:
            asked = self._by_loop[loop] = _Asked(self._read, self._at_once)
        answer: asyncio.Future[T] = loop.create_future()
        asked.add(run_id, answer)
        return await answer


class _Asked(Generic[T]):
    def __init__(self, read: Read[T], at_once: int) -> None:
        self._read = read
        self._at_once = at_once
        self._waiting: list[tuple[str, asyncio.Future[T]]] = []
        self._under_way = 0
        self._readers: set[asyncio.Task[None]] = set()

    def add(self, run_id: str, answer: asyncio.Future[T]) -> None:
        self._waiting.append((run_id, answer))
        if self._under_way < self._at_once:
            self._under_way += 1
            reader = asyncio.ensure_future(self._serve())
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)

    async def _serve(self) -> None:
        try:
            await self._serve_all()
        finally:
            # Here, not when the task is done: who is answered and asks again must find us idle.
            self._under_way -= 1

    async def _serve_all(self) -> None:
        while taken := self._next():
            try:
                found = await self._read(list(taken))
            except BaseException as error:
                for answer in taken.values():
                    if not answer.done():
                        answer.set_exception(copy(error))
                if not isinstance(error, Exception):
                    raise
                continue
            for run_id, answer in taken.items():
                if answer.done():
                    continue  # cancelled meanwhile
                result = found.get(run_id, RunNotFound(run_id))
                if isinstance(result, TenureError):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _next(self) -> dict[str, asyncio.Future[T]]:
        """Who asks for what somebody else asks for comes next time: values are not shared."""
        taken: dict[str, asyncio.Future[T]] = {}
        left: list[tuple[str, asyncio.Future[T]]] = []
        for run_id, answer in self._waiting:
            if answer.done():
                continue
            if run_id in taken or len(taken) == _MOST:
                left.append((run_id, answer))
            else:
                taken[run_id] = answer
        self._waiting = left
        return taken
