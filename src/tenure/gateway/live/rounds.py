"""Asking the store what is new of everything somebody looks at: one task, however many look,
and one question as long as nothing happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from tenure.cancelling import end
from tenure.gateway.live.surveying import Survey
from tenure.gateway.live.watched import Growing
from tenure.model.errors import StoreUnavailable
from tenure.runtime.waiting import happens_within

G = TypeVar("G", bound=Growing[Any])

_log = logging.getLogger("tenure.gateway")

EVERY = 0.05
"""Seconds from one round to the next."""
_REST = 4
"""Times as long as a round took is waited at least: a slow store is not kept busy by looking."""
_AT_ONCE = 8
_LONGEST_REST = 5.0


class Rounds:
    """``clock`` counts seconds. Begins with the first viewer and ends with the last."""

    def __init__(self, survey: Survey, clock: Callable[[], float], every: float = EVERY) -> None:
        self._survey = survey
        self._clock = clock
        self._every = every
        self._watched: dict[Hashable, Growing[Any]] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._away = False

    @property
    def idle(self) -> bool:
        """Whether nobody looks, and nothing is asked."""
        return self._task is None and not self._watched

    @asynccontextmanager
    async def viewing(self, key: Hashable, make: Callable[[], G]) -> AsyncIterator[G]:
        """What is watched under ``key``, made if nobody does yet; looked at while it is entered."""
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = make()
        watched.viewers += 1
        self.hurry()
        try:
            yield cast(G, watched)
        finally:
            watched.viewers -= 1
            if not watched.viewers:
                del self._watched[key]
            if not self._watched:
                await self._stop()

    def hurry(self) -> None:
        """Go round now."""
        self._hurry.set()
        if self._task is None:
            self._task = asyncio.create_task(self._go_on())

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end(task)

    async def _go_on(self) -> None:
        while True:
            self._hurry.clear()
            began = self._clock()
            await self._go_round()
            rest = min((self._clock() - began) * _REST, _LONGEST_REST)
            await happens_within(self._hurry, max(rest, self._every))

    async def _go_round(self) -> None:
        watched = [w for w in self._watched.values() if not w.over and w.failure is None]
        if not await self._is_answered(self._survey.take(watched)):
            return
        left = iter([each for each in watched if not each.still])

        async def look() -> None:
            for each in left:
                await self._look_at(each)

        await asyncio.gather(*(look() for _ in range(_AT_ONCE)))

    async def _look_at(self, watched: Growing[Any]) -> None:
        """A store that does not answer is asked again; everything else its viewers are told."""
        try:
            await self._is_answered(watched.look())
        except Exception as error:  # noqa: BLE001  (theirs to tell)
            watched.fail(error)

    async def _is_answered(self, question: Awaitable[None]) -> bool:
        try:
            await question
        except StoreUnavailable as error:
            if not self._away:
                _log.warning("viewers wait: the store does not answer (%s)", error)
            self._away = True
            return False
        if self._away:
            _log.warning("the store answers again; viewers go on")
        self._away = False
        return True
