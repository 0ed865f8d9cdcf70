"""Whether the store can be used, for whoever asks and however often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from tenure.model.errors import StoreIncompatible, StoreUnavailable, TenureError
from tenure.ports.run_store import RunStateStore
from tenure.ports.upkeep import Readiness

_PATIENCE = 2.0
"""Seconds for the store to answer."""
_FRESH = 1.0
"""Seconds for which an answer stands: those who ask need no token, and must cost nothing."""


class StoreWatch:
    def __init__(self, store: RunStateStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._seen = ""
        self._seen_at = -inf
        self._looking = asyncio.Lock()

    async def state(self) -> str:
        """``ok``, or in one word what is wrong."""
        async with self._looking:
            if self._clock() - self._seen_at > _FRESH:
                self._seen = await self._look()
                self._seen_at = self._clock()
        return self._seen

    async def _look(self) -> str:
        try:
            async with asyncio.timeout(_PATIENCE):
                if isinstance(self._store, Readiness):
                    await self._store.check_ready()
                else:
                    await self._store.list_runs(limit=1)
        except StoreIncompatible:
            return "incompatible"
        except (StoreUnavailable, TimeoutError):
            return "unavailable"
        except TenureError:
            return "unusable"
        return "ok"
