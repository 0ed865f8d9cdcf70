"""Hints within this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress

from tenure.stores.memory.state import MemoryState


class MemoryWakeups:
    """``Wakeups``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    @asynccontextmanager
    async def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def hear(news: frozenset[str], wanted: frozenset[str] = frozenset(topics)) -> None:
            if news & wanted:
                with suppress(RuntimeError):  # its loop has ended
                    loop.call_soon_threadsafe(heard)

        with self._state.lock:
            self._state.listeners.append(hear)
        loop.call_soon(heard)
        try:
            yield
        finally:
            with self._state.lock:
                self._state.listeners.remove(hear)
