"""One thing that grows while others look at it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from tenure.gateway.live.frames import Frame

K = TypeVar("K", bound=Any)
"""A place: they can be compared, and are greater the later they are."""

MOST_BYTES = 1 << 20
"""Of what is kept for all who look; who is further behind reads in the store."""
CHUNK = 64 << 10
"""Bytes handed to a viewer at once, if no single frame is larger."""
_place = itemgetter(0)


class Part(NamedTuple, Generic[K]):
    """What comes behind some place, up to ``place``; perhaps nothing."""

    place: K
    data: bytes


class Growing(ABC, Generic[K]):
    """``place``: how far it has been read. ``kept_behind``: all that came after it is kept."""

    def __init__(self, place: K) -> None:
        self.place = place
        self.kept_behind = place
        self.over = False
        """Nothing more will come."""
        self.failure: Exception | None = None
        self.viewers = 0
        self._frames: list[Frame[K]] = []
        self._bytes = 0
        self._news = asyncio.Event()

    @property
    def still(self) -> bool:
        """Whether it is known that there is nothing new."""
        return False

    @abstractmethod
    async def look(self) -> None:
        """Ask the store once what is new, and ``publish`` it."""

    def fail(self, error: Exception) -> None:
        """It cannot be read any more."""
        self.failure = error
        self.tell()

    def end(self) -> None:
        self.over = True
        self.tell()

    def publish(self, frames: Sequence[Frame[K]]) -> None:
        if not frames:
            return
        self._frames += frames
        self._bytes += sum(len(frame.data) for frame in frames)
        self.place = frames[-1].place
        self._forget()
        self.tell()

    def tell(self) -> None:
        """Wake whoever waits."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self) -> None:
        await self._news.wait()

    def behind(self, place: K) -> Part[K]:
        """What is kept behind it, as much as may be handed over at once."""
        start = end = bisect_right(self._frames, place, key=_place)
        size = 0
        while end < len(self._frames) and (size == 0 or size < CHUNK):
            size += len(self._frames[end].data)
            end += 1
        chosen = self._frames[start:end]
        if not chosen:
            return Part(place, b"")
        return Part(chosen[-1].place, b"".join(frame.data for frame in chosen))

    def _forget(self) -> None:
        """The newest frame stays, however large."""
        gone = 0
        while self._bytes > MOST_BYTES and gone < len(self._frames) - 1:
            self._bytes -= len(self._frames[gone].data)
            gone += 1
        if gone:
            self.kept_behind = self._frames[gone - 1].place
            del self._frames[:gone]


class Watched(Growing[K]):
    """Something with an end, all of which can be read in the store by place. ``name`` is the one by
    which the store can be asked for how much there is of it."""

    def __init__(self, name: Hashable, place: K) -> None:
        super().__init__(place)
        self.name = name
        self.size: int | None = None
        """How much there is of it, in the store's own measure, if somebody asked: ``surveying``."""
        self.size_seen: int | None = None
        """With how much all was read."""
        self._reading: dict[K, asyncio.Task[Part[K]]] = {}

    @property
    def still(self) -> bool:
        return self.size is not None and self.size == self.size_seen

    @abstractmethod
    async def read(self, behind: K) -> Part[K]:
        """What the store has behind a place that is not kept any more, or never was."""

    @abstractmethod
    def last_words(self) -> bytes:
        """For who has seen all of it."""

    async def history(self, behind: K) -> Part[K]:
        """``read``, once for all who want the same at the same time."""
        task = self._reading.get(behind)
        if task is None:
            task = self._reading[behind] = asyncio.create_task(self.read(behind))
            task.add_done_callback(lambda done: self._was_read(behind, done))
        return await asyncio.shield(task)

    def _was_read(self, behind: K, done: asyncio.Task[Part[K]]) -> None:
        self._reading.pop(behind, None)
        if not done.cancelled():
            done.exception()  # whoever waits has it; perhaps nobody does any more
