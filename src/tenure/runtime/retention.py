"""Forgets runs that ended long ago, a few at a time.

Whoever works on the store must not notice. So a batch is small, and is followed by a pause that
keeps what one process removes below ``per_second`` runs a second, however much there is to remove.
Several processes may do this to one store: they take different runs, and each keeps its own budget.
What is removed, and that a run which has not ended never is, is the store's business
(``ports.retention``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import ulp
from typing import NamedTuple

from msgspec import Struct

from tenure.aio import ENDLESS, end, pause
from tenure.model.errors import InvalidOptions
from tenure.model.query import MAX_AGE_SECONDS
from tenure.ports.store import Retention
from tenure.runtime.option_rules import Rules, broken, is_number, is_whole
from tenure.runtime.retention_limits import MOST_PER_SECOND

_log = logging.getLogger("tenure.runtime")

_BATCHES_PER_SECOND = 4
_LARGEST_BATCH = 100
_NOTHING_LEFT = 60.0
"""Seconds until the next look, once nothing old is left."""


class PruneRate(NamedTuple):
    """A budget of so many runs a second."""

    per_second: int

    @property
    def batch(self) -> int:
        return max(1, min(_LARGEST_BATCH, self.per_second // _BATCHES_PER_SECOND))

    def seconds_for(self, removed: int) -> float:
        """What a batch that removed so many has used up, counted from its beginning."""
        return removed / self.per_second


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    seconds: float
    """How long a run is kept after its end."""
    per_second: int = 100
    """Runs that one process removes in a second, at most."""

    def __post_init__(self) -> None:
        """``InvalidOptions`` names everything that cannot be meant."""
        wrong = broken(_RULES, self, _RULES)
        if wrong:
            raise InvalidOptions(wrong)

    @property
    def batch(self) -> int:
        return PruneRate(self.per_second).batch

    def wait_after(self, removed: int) -> float:
        """Seconds until the next batch may begin, after one that removed so many began."""
        if removed < self.batch:
            return min(_NOTHING_LEFT, max(self.seconds, 1.0))
        return PruneRate(self.per_second).seconds_for(removed)


_RULES: Rules = {
    "seconds": (
        is_number(ulp(0.0), MAX_AGE_SECONDS),
        f"seconds, more than 0 and at most {MAX_AGE_SECONDS:g}",
    ),
    "per_second": (is_whole(1, MOST_PER_SECOND), f"a whole number from 1 to {MOST_PER_SECOND}"),
}


async def remove_old(
    store: Retention,
    older_than: float,
    rate: PruneRate,
    told: Callable[[int], None],
    wait: Callable[[float], Awaitable[None]] = pause,
) -> int:
    """All that ended so long ago, batch after batch: how many. ``told`` hears how many so far."""
    loop, count = asyncio.get_running_loop(), 0
    while True:
        began = loop.time()
        removed = await store.prune_runs(older_than, limit=rate.batch)
        if not removed:
            return count
        count += removed
        told(count)
        await wait(max(rate.seconds_for(removed) - (loop.time() - began), 0.0))


class _Look(NamedTuple):
    wait: float
    failures: int


class PruneLoop:
    """The loop. Begins at once, so that commands which live for a moment take their part too."""

    def __init__(
        self,
        store: Retention,
        policy: RetentionPolicy,
        wait: Callable[[float], Awaitable[None]] = pause,
    ) -> None:
        self._store = store
        self._policy = policy
        self._wait = wait
        self._going: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._going = asyncio.create_task(self._go_on())

    async def close(self) -> None:
        """A batch under way is left to the store: it removes each run whole, or not at all."""
        if self._going is not None:
            await end(self._going)

    async def _go_on(self) -> None:
        look = _Look(0.0, 0)
        while True:
            began = asyncio.get_running_loop().time()
            look = await self._look(look.failures)
            took = asyncio.get_running_loop().time() - began
            await self._wait(max(look.wait - took, 0.0))

    async def _look(self, failures: int) -> _Look:
        try:
            removed = await self._store.prune_runs(self._policy.seconds, limit=self._policy.batch)
        except Exception as error:  # noqa: BLE001  whatever it is, it must be tried again
            if not failures:
                _log.warning(
                    "runs that ended long ago cannot be removed (%s); it is tried again",
                    str(error) or type(error).__name__,
                )
            return _Look(ENDLESS.wait_after(failures + 1, luck=0.0) or 0.0, failures + 1)
        if failures:
            _log.warning("runs that ended long ago can be removed again")
        return _Look(self._policy.wait_after(removed), 0)
