"""Who may claim, and how much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.worker.shift import Shift


class Room:
    """For ``most`` runs at once. Claims are made one after another, whether by looking at the store
    or on a hint: so none takes room that another counts on, or what another just got."""

    def __init__(self, shift: Shift, most: int) -> None:
        self._shift = shift
        self._most = most
        self._claiming = asyncio.Lock()
        self._nothing_waits = asyncio.Event()
        self.closed = False

    @property
    def left(self) -> int:
        return 0 if self.closed else self._most - len(self._shift)

    @property
    def at_once(self) -> bool:
        """There is some, and nobody is claiming."""
        return self.left > 0 and not self._claiming.locked()

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[int]:
        """For how many there is room meanwhile."""
        async with self._claiming:
            yield self.left
            if not self.left:
                self._nothing_waits.clear()

    def looked(self, *, found_all: bool) -> None:
        """At the store, with room. ``found_all``: nothing more was there."""
        if found_all and self.left:
            self._nothing_waits.set()
        else:
            self._nothing_waits.clear()

    async def for_hints(self) -> int:
        """Waits until there is room that nothing in the store wants: what waits there has its
        order, and a hint would jump the queue."""
        await self._nothing_waits.wait()
        return self.left

    def close(self) -> None:
        """There is none from now on."""
        self.closed = True
        self._nothing_waits.clear()

    async def quiet(self) -> None:
        """Nothing is being claimed any more when this returns."""
        async with self._claiming:
            pass
