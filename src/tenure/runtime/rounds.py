"""What a keeper does all the time: renew the leases, and look what operators ask for.

The same in a thread of its own and in the event loop that drives the runs; only the way differs in
which that loop is told. It answers roll calls, too: a loop that hangs must not hold runs for ever,
so nothing is renewed while a call has stood unanswered for a renew interval. Its leases then end
within their duration, its supervisor kills its tasks before that, and others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from tenure.model.leasing import Lease
from tenure.model.query import RunFilter
from tenure.ports.keeping import LeaseKeeping
from tenure.ports.run_store import RunStateStore
from tenure.runtime.holdings import Holding, Holdings
from tenure.runtime.in_touch import InTouch
from tenure.runtime.lease_timing import Timing
from tenure.runtime.waiting import happens_within

_log = logging.getLogger("tenure.runtime")

Tell = Callable[[Callable[[], None]], object]
"""Has a function called by the event loop that drives the runs."""


class RollCall:
    """Whether the loop that drives the runs still goes round."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._asked_at: float | None = None

    def call(self, now: float) -> None:
        if self._asked_at is None:
            self._asked_at = now
            self._tell(self._answer)

    def silent_for(self, now: float) -> float:
        return 0.0 if self._asked_at is None else now - self._asked_at

    def _answer(self) -> None:
        self._asked_at = None


class Rounds:
    """``look_now``: somebody may have asked for something."""

    def __init__(
        self,
        store: RunStateStore | LeaseKeeping,
        tell: Tell,
        look_now: asyncio.Event,
        holdings: Holdings,
        owner_id: str,
        timing: Timing,
        touch: InTouch,
    ) -> None:
        self._store = store
        self._leases = store if isinstance(store, LeaseKeeping) else None
        self._tell = tell
        self._holdings = holdings
        self._owner_id = owner_id
        self._timing = timing
        self._touch = touch
        """Of the loop that drives the runs: spoken to through ``tell``."""
        self._roll = RollCall(tell)
        self._look_now = look_now
        self._complained: set[str] = set()
        self._troubled_at = -inf
        """Loop time of the last trouble. It is over with a renewal that a whole interval without
        any went before: a full disk takes one and refuses the next, and that is told of once."""
        self._over = False

    def end(self) -> None:
        """Make no further round. (Cancelling alone would not do: a client whose answer came in that
        very moment may forget about it.)"""
        self._over = True
        self._look_now.set()

    async def go(self) -> None:
        """Until nothing is held."""
        time = asyncio.get_running_loop().time
        while not (self._over or self._holdings.rest()):
            self._roll.call(time())
            await happens_within(self._look_now, self._until_next(time()))
            self._look_now.clear()
            await self._round(time())

    async def _round(self, now: float) -> None:
        """One call for all runs. No answer is waited for past the moment when one of them is no
        longer trusted; nor so long that a renewal would be late by more than half an interval."""
        held = self._holdings.renewable(now)
        due = self._due(held)
        renews = due <= now and self._is_heard(now)
        ends = (holding.trusted_until for holding, _ in held)
        patience = self._timing.renew_interval if renews else self._timing.renew_interval / 2
        try:
            async with asyncio.timeout_at(min([now + patience, *ends])):
                if renews and self._leases is not None:
                    await self._renew(self._leases, held, now)
                else:
                    await self._look_for_requests()
        except Exception as error:  # noqa: BLE001  whatever it is, leases must be tried again
            self._tell(self._touch.lost)
            self._complain(
                "the store does not answer for the leases of %s (%s); their tasks are stopped "
                "if it does not before the leases end",
                _reason(error),
            )
        else:
            went_well = now >= self._troubled_at + self._timing.renew_interval
            if self._complained and went_well and (renews or not held):
                self._complained.clear()
                if held:  # else those of which it was said are no longer ours to renew
                    _log.warning("leases are renewed as usual again")

    def _until_next(self, now: float) -> float:
        """Never later than the next renewal; one that is overdue is tried again at the usual
        pace."""
        due = self._due(self._holdings.renewable(now))
        return min(self._timing.pace, due - now if due > now else inf)

    def _due(self, held: Sequence[tuple[Holding, Lease]]) -> float:
        oldest = min((holding.renewed_at for holding, _ in held), default=inf)
        return oldest + self._timing.renew_interval

    def _is_heard(self, now: float) -> bool:
        silent = self._roll.silent_for(now)
        if silent < self._timing.renew_interval:
            return True
        self._complain(
            "the leases of %s are not renewed: the event loop of this process has been held "
            "up for %s; look for what blocks it",
            f"{silent:.1f} s",
        )
        return False

    async def _renew(
        self, store: LeaseKeeping, held: Sequence[tuple[Holding, Lease]], sent_at: float
    ) -> None:
        seconds = self._timing.lease_duration
        renewals = await store.renew_leases([lease for _, lease in held], seconds)
        self._tell(partial(self._touch.answered, sent_at))
        lost: list[Holding] = []
        canceled: list[Holding] = []
        for (holding, _), renewal in zip(held, renewals, strict=True):
            if not renewal.ok:
                lost.append(holding)
                continue
            if not renewal.busy:  # or it is tried again, at the pace of what is overdue
                self._holdings.prolong(holding, sent_at)
            if renewal.cancel_requested_at is not None and not holding.cancel_heard:
                canceled.append(holding)
        self._pass_on(lost, canceled)

    async def _look_for_requests(self) -> None:
        """One question for all runs of this owner, read only. (Stores that do not know the
        condition list more than was asked for.)"""
        where = RunFilter(owner_id=self._owner_id, canceling=True)
        cursor = None
        while True:
            page = await self._store.list_runs(where, limit=500, cursor=cursor)
            found = (self._holdings.find(x.run_id) for x in page.items if x.cancel_requested_at)
            self._pass_on([], [each for each in found if each and not each.cancel_heard])
            cursor = page.cursor
            if cursor is None:
                return

    def _pass_on(self, lost: Sequence[Holding], canceled: Sequence[Holding]) -> None:
        if lost or canceled:
            self._tell(partial(self._hear, lost, canceled))

    def _hear(self, lost: Sequence[Holding], canceled: Sequence[Holding]) -> None:
        for holding in lost:
            self._holdings.lose(holding, "another owner has it")
        for holding in canceled:
            self._holdings.cancel(holding)

    def _complain(self, words: str, why: str) -> None:
        """Once, until it is over; not at all if the last run was dropped meanwhile."""
        self._troubled_at = asyncio.get_running_loop().time()
        runs = len(self._holdings)
        if runs and words not in self._complained:
            self._complained.add(words)
            _log.warning(words, f"{runs} run{'s'[: runs != 1]}", why)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):  # we gave up ourselves
        return "no answer in time"
    return str(error) or type(error).__name__
