"""Leaving a server that takes no writes any more.

One that was made read-only may keep its connections. Who only reads, or listens, would stay with it
for ever, and a write that it refuses tells of one connection only. So what one has met counts for
all that were made before: those that are idle end at once, those in use when they come back, and
whoever listens hears that his line has ended. The next one leads to the server that takes writes:
whoever connects asks for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from tenure.stores.postgres.lane import Lane
from tenure.stores.postgres.line import Line


class Leaving:
    def __init__(self) -> None:
        self.era = 0
        """How often a server was left."""
        self._lent: dict[Line, asyncio.AbstractEventLoop] = {}

    def has_left(self, line: Line) -> bool:
        return line.era != self.era

    def leave(self, line: Line, lanes: Iterable[Lane]) -> None:
        """What ``line`` leads to. If that was left before, those that came later stay."""
        if self.has_left(line):
            return
        self.era += 1
        for lane in lanes:
            while (idle := lane.take()) is not None:
                idle.hang_up()
        for lent, loop in list(self._lent.items()):
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(lent.cut)

    @contextmanager
    def lending(self, line: Line) -> Iterator[None]:
        """For long: who has it reads its end when its server is left."""
        self._lent[line] = asyncio.get_running_loop()
        try:
            if self.has_left(line):  # while it was being made
                line.cut()
            yield
        finally:
            del self._lent[line]
