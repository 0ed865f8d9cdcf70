"""What a worker does all day: claim as much as there is room for, wait, and in the end drain."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress

from tenure.cancelling import end
from tenure.runtime.embedded import Work
from tenure.runtime.in_touch import InTouch
from tenure.runtime.waiting import happens_within
from tenure.worker.claiming import Claims
from tenure.worker.lone import Lone
from tenure.worker.pace import Pace
from tenure.worker.room import Room
from tenure.worker.shift import Shift

_log = logging.getLogger("tenure.worker")

_A_MOMENT = 1.0
"""Seconds for the answer to a claim once nothing more is to be claimed."""
_GIVING_BACK = 15.0
"""Seconds in which at least one more run is given back: tasks that are deaf to requests have their
grace in it, and the store its time to answer."""
_LEFT_TO_OTHERS = (
    "the next worker goes on with what it had: on this machine right away, on others when the "
    "leases have ended"
)
"""What is true of the runs of a worker that ends without giving them back."""


class Duty:
    """``wake`` is set when there may be something to claim, or room for it."""

    def __init__(
        self,
        claims: Claims,
        lone: Lone,
        shift: Shift,
        room: Room,
        touch: InTouch,
        pace: Pace,
        wake: asyncio.Event,
    ) -> None:
        self._claims = claims
        self._lone = lone
        self._shift = shift
        self._room = room
        self._touch = touch
        self._pace = pace
        self._wake = wake
        self._claiming: asyncio.Task[bool] | None = None
        self._giving_up: asyncio.Task[None] | None = None
        self._draining = False
        self._at_once = False
        self._claim_by = 0.0
        """Loop time from when on it is not enough to see whether a run waits alone: leases may have
        ended."""
        self._look_by = 0.0
        """Loop time from when on neighbours are looked for again."""
        self._rests = False
        """There was nothing to claim."""

    def drain(self, *, at_once: bool = False) -> None:
        """Claim nothing more; ``at_once``: wait for nothing to end by itself."""
        self._draining = True
        self._at_once |= at_once
        self._room.close()
        self._wake.set()
        if self._claiming is not None:
            asyncio.get_running_loop().call_later(_A_MOMENT, self._give_up, self._claiming)

    def heard(self) -> None:
        """A hint. If it brought a run that can begin here, that begins; else there may be something
        to claim."""
        if not (self._rests and self._begin_what_came()):
            self._wake.set()

    def _begin_what_came(self) -> bool:
        if self._draining or self._wake.is_set() or not self._room.at_once:
            return False
        work = self._lone.at_hand()
        if work is not None:
            self._begin([work])
        return work is not None

    async def run(self) -> bool:
        """Until it is drained and nothing runs any more; whether the store took all runs back."""
        while not self._draining:
            self._wake.clear()
            if self._room.left and await self._claim():
                continue
            if not self._draining:
                await self._look_away()
        return await self._finish()

    def _give_up(self, claiming: asyncio.Task[bool]) -> None:
        if self._giving_up is None:
            self._giving_up = asyncio.create_task(end(claiming))

    async def _claim(self) -> bool:
        """Whether there may be more to claim."""
        claiming = self._claiming = asyncio.create_task(self._take())
        try:
            # Not ``await claiming``: whoever cancels us would reach that one, which bears errors.
            await asyncio.wait([claiming])
        finally:
            self._claiming = None
            await end(claiming)
        if claiming.cancelled():
            return False  # nobody knows whether we got any; their leases will end
        return claiming.result()

    async def _take(self) -> bool:
        async with self._room.claiming() as left:
            asked = min(left, self._pace.claim_batch)
            if not asked:
                return False
            now = asyncio.get_running_loop().time()
            if self._missed_a_neighbour(now):
                self._claim_by = 0.0
            alone = await self._lone.look() if now < self._claim_by else None
            if alone is not None:
                self._begin(alone)
                return False
            self._claim_by = now + self._interval()
            claimed = await self._claims.next(asked)
            if self._draining:
                await self._claims.give_back(claimed)
                return False
            for claim in claimed:
                self._shift.begin(claim)
            self._room.looked(found_all=len(claimed) < asked)
        return len(claimed) == asked

    def _missed_a_neighbour(self, now: float) -> bool:
        """Its leases have ended with it. Seeing that it is there takes a few files of the system,
        which is too much for every claim."""
        if now < self._look_by:
            return False
        self._look_by = now + self._pace.poll_interval
        return self._claims.a_neighbour_died()

    def _begin(self, alone: Sequence[Work]) -> None:
        if not self._draining:
            for work in alone:
                self._shift.take(work)
            self._room.looked(found_all=True)

    def _interval(self) -> float:
        """Workers that all looked at the same moment would take it from one another."""
        return self._pace.poll_interval * random.uniform(0.75, 1.25)  # noqa: S311

    async def _look_away(self) -> None:
        """Until it is time to claim, however many runs come with their hints meanwhile."""
        now = asyncio.get_running_loop().time()
        wait = self._claim_by - now
        if wait <= 0:  # there was no room
            wait = self._interval()
        self._touch.rests(now + wait)
        self._rests = True
        try:
            if not await happens_within(self._wake, wait):
                self._claim_by = 0.0
        finally:
            self._rests = False

    async def _finish(self) -> bool:
        with suppress(TimeoutError):  # who follows a hint may wait for the store in vain
            async with asyncio.timeout(2 * _A_MOMENT):
                await self._room.quiet()
        time = asyncio.get_running_loop().time
        deadline = time() + self._pace.drain_timeout
        if len(self._shift):
            _log.info("draining: %d of its runs have not ended", len(self._shift))
        while len(self._shift) and not self._at_once and time() < deadline:
            self._wake.clear()
            await happens_within(self._wake, deadline - time())
        if not len(self._shift):
            return True
        _log.info(
            "%d runs have not ended in time: they are given back as far as they have come; "
            "those that do not resume end as interrupted",
            len(self._shift),
        )
        self._shift.hand_over()
        return await self._given_back()

    async def _given_back(self) -> bool:
        """Whether all were, as soon as that can be said."""
        time, left = asyncio.get_running_loop().time, len(self._shift)
        deadline = time() + _GIVING_BACK
        while left:
            self._wake.clear()
            await happens_within(self._wake, deadline - time())
            if len(self._shift) < left:
                left, deadline = len(self._shift), time() + _GIVING_BACK
            elif time() >= deadline:
                runs = "1 run" if left == 1 else f"{left} runs"
                _log.warning("the store does not take %s back: %s", runs, _LEFT_TO_OTHERS)
                return False
        return True
