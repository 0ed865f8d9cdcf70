"""Saying that a run may be claimed, without ever standing in the way of who says it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tenure.ports.broker import Broker

_log = logging.getLogger("tenure.runtime")

_AT_MOST = 2.0
"""Seconds that a hint may hold up who gives it."""
_SILENCE = 5.0
"""Seconds without an attempt after one that failed: what follows is not held up again."""


class Hinting:
    """Best effort: what was not hinted at is found by looking."""

    def __init__(self, broker: Callable[[], Awaitable[Broker | None]], name: str) -> None:
        """``broker`` opens it, if need be; ``name`` is for messages, without a password."""
        self._broker = broker
        self._name = name
        self._silent_until = 0.0
        self._failing = False

    async def hint(self, queue: str, run_id: str) -> None:
        """Once the store has the run as it can be claimed, not before. Raises nothing."""
        time = asyncio.get_running_loop().time
        if time() < self._silent_until:
            return
        limit = asyncio.timeout(_AT_MOST)
        try:
            async with limit:
                broker = await self._broker()
                if broker is not None:
                    await broker.publish(queue, run_id)
        except Exception as error:  # noqa: BLE001  a broker of somebody else's may raise anything
            self._silent_until = time() + _SILENCE
            if not self._failing:
                self._failing = True
                said = str(error) or type(error).__name__
                if limit.expired():
                    said = f"the broker {self._name} did not answer for {_AT_MOST:g} s"
                _log.warning("workers are not told of new runs and find them by looking: %s", said)
        else:
            self._failing = False
