"""What recorders have not been told yet, in bounded memory.

A recorder that is slow, or hangs, must neither hold up the run nor let it eat the machine. Beyond
``MOST_KEPT`` events only the versions are remembered: the journal has the rest, and is read when
the recorder comes to it. A store without a journal has no second copy: there they are dropped,
counted, and the log says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from tenure.model.events import RecordedEvent

MOST_KEPT = 10_000


class Stretch(NamedTuple):
    """A piece of the journal, from version ``first`` to ``last``."""

    first: int
    last: int
    ours: list[RecordedEvent]
    complete: bool = True
    """``ours`` are all there is; else somebody else wrote too, or they were too many to keep."""
    dropped: int = 0
    """Events that stand behind ``ours`` and are kept nowhere."""


class Backlog:
    """First in, first out; ``None`` is the end."""

    def __init__(self, *, journal: bool) -> None:
        self._journal = journal
        self._waiting: deque[Stretch | None] = deque()
        self._news = asyncio.Event()
        self.events = 0
        """Kept in memory."""

    def add(self, told: Stretch) -> None:
        newest = self._waiting[-1] if self._waiting else None
        if newest is not None and self.events + len(told.ours) > MOST_KEPT:
            self._waiting[-1] = self._merged(newest, told)
            return
        self.events += len(told.ours)
        self._waiting.append(told)
        self._news.set()

    def end(self) -> None:
        self._waiting.append(None)
        self._news.set()

    async def next(self) -> Stretch | None:
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        told = self._waiting.popleft()
        if told is not None:
            self.events -= len(told.ours)
        return told

    def _merged(self, newest: Stretch, told: Stretch) -> Stretch:
        if not self._journal:
            dropped = newest.dropped + len(told.ours)
            return newest._replace(last=told.last, dropped=dropped)
        self.events -= len(newest.ours)
        return Stretch(newest.first, told.last, [], complete=False)
