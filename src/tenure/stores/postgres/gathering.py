"""Reads of single runs that are asked for at the same moment share a trip.

There is no timer. While a read is on its way, further ones gather; the next takes them all. An idle
store is asked at once. What is read is never older than the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from tenure.model.errors import RunNotFound

T = TypeVar("T")

Read = Callable[[Sequence[str]], Awaitable[dict[str, T]]]
"""Those that are there, by id; a value for each who asked, if that is several."""

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
        return await asked.get(run_id)


class _Asked(Generic[T]):
    def __init__(self, read: Read[T], at_once: int) -> None:
        self._read = read
        self._at_once = at_once
        self._waiting: dict[str, asyncio.Future[T]] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def get(self, run_id: str) -> T:
        while run_id in self._waiting:
            # Two who want the same run get a value each.
            await asyncio.wait([self._waiting[run_id]])
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[run_id] = answer
        if len(self._readers) < self._at_once:
            reader = asyncio.ensure_future(self._serve())
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
        return await answer

    async def _serve(self) -> None:
        while self._waiting:
            run_ids = list(self._waiting)[:_MOST]
            taken = {run_id: self._waiting.pop(run_id) for run_id in run_ids}
            try:
                found = await self._read(run_ids)
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
                if run_id in found:
                    answer.set_result(found[run_id])
                else:
                    answer.set_exception(RunNotFound(run_id))
