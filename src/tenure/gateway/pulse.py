"""How long a request may have waited before anybody here could read it.

While the process stands still (stopped, frozen with its container, held up) requests lie with the
operating system, which does not say since when. So it is measured whether the process went on all
the time; if it did not, whatever is answered in the moment after may have been asked before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any

from tenure.cancelling import end
from tenure.gateway.calls import Call
from tenure.model.leasing import LATE, Request
from tenure.runtime.waiting import pause

_EVERY = LATE / 4
_A_MOMENT = LATE
"""Seconds in which what lay there has been answered."""


def waited(call: Call[Any, Any]) -> float:
    """Seconds since a request came, which its store cannot know of: while this process stood still
    nobody could renew a lease through it either."""
    return call.parts.waited() + asyncio.get_running_loop().time() - call.received_at


def as_it_comes(call: Call[Any, Any], request: Request) -> Request:
    """A claim, as it counts now."""
    now = asyncio.get_running_loop().time()
    return call.parts.pace.in_time(request, now - waited(call), now)


def comes_in_time(call: Call[Any, Any]) -> bool:
    """To be asked for leases that ran out."""
    return waited(call) <= LATE


class Pulse:
    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._last = time()
        self._stood = 0.0
        self._woke_at = -inf

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._go())
        try:
            yield
        finally:
            await end(task)

    def waited(self) -> float:
        """Seconds, at most, of a request that is answered now. Zero, unless the process has just
        stood still for longer than a claim may be late."""
        self.beat()
        return self._stood if self._last - self._woke_at <= _A_MOMENT else 0.0

    def beat(self) -> None:
        now = self._time()
        if now - self._last > LATE:
            self._stood, self._woke_at = now - self._last, now
        self._last = now

    async def _go(self) -> None:
        while True:
            await pause(_EVERY)
            self.beat()
