"""Waiting for what the turns of a loop come to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Turns:
    """The loop says when a turn begins and how it ended. Who waits, waits for a turn that began
    afterwards: the one under way may have missed what they wait for."""

    def __init__(self) -> None:
        self._number = 0
        self._over = asyncio.Event()
        self._at_rest_in = -1
        """The last turn that found nothing and left nothing to do."""
        self._too_late_in = -1
        """The last turn that left nothing to wait for: there is no time to begin anything."""

    def begin(self) -> None:
        self._number += 1

    def end(self, *, at_rest: bool = False, too_late: bool = False) -> None:
        if at_rest:
            self._at_rest_in = self._number
        if too_late:
            self._too_late_in = self._number
        self._over.set()
        self._over = asyncio.Event()

    async def come_to_rest(self) -> None:
        """``TimeoutError`` if it is too late."""
        asked_in = self._number
        while self._at_rest_in <= asked_in:
            await self._next(asked_in, self._over)

    async def bring_about(self, what: Callable[[], Awaitable[bool]]) -> None:
        """Asks for it now and after each turn. ``TimeoutError`` if it is too late."""
        asked_in = self._number
        while True:
            over = self._over
            if await what():
                return
            await self._next(asked_in, over)

    async def _next(self, asked_in: int, over: asyncio.Event) -> None:
        if self._too_late_in > asked_in:
            raise TimeoutError
        await over.wait()
