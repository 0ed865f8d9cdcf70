"""Something that must have happened by some time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    __slots__ = ("_timer",)

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    @property
    def runs(self) -> bool:
        return self._timer is not None

    def begin(
        self, loop: asyncio.AbstractEventLoop, seconds: float, missed: Callable[[], object]
    ) -> None:
        """One that runs goes on as it was."""
        if self._timer is None:
            self._timer = loop.call_later(seconds, missed)

    def met(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
