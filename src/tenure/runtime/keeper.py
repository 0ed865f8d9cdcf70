"""Keeps the leases of this process's runs alive, and hears what operators ask of them.

The holder trusts a lease until *the moment its last successful renewal was sent*, plus the
duration, minus a margin in which its tasks can be ended. Past that somebody else may hold the run,
whatever we believe: its tasks are stopped before the lease can expire, not after.

Two parts that share nothing but the holdings (``holdings`` says who may do what). Renewals are made
by ``rounds``: in a thread of their own where the store lets them (``KeptApart``), so that no task
and no callback of this process can hold them up, else in the loop that drives the runs. That loop
itself gives up what was not renewed in time, whatever became of the rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Protocol

from tenure.cancelling import end
from tenure.model.leasing import Lease
from tenure.ports.keeping import KeptApart
from tenure.ports.lease_store import LeaseStore
from tenure.ports.run_store import RunStateStore
from tenure.ports.trust import TrustWindows
from tenure.runtime.holdings import Holding, Holdings
from tenure.runtime.in_touch import InTouch
from tenure.runtime.keeper_thread import Apart
from tenure.runtime.lease_timing import Timing
from tenure.runtime.rounds import Rounds


class Place(Protocol):
    """Where the rounds are made."""

    def begin(self, *, rested: bool) -> None:
        """There is something to keep; ``rested``: after a time when there was nothing."""
        ...

    def look_now(self) -> None: ...
    async def close(self) -> None: ...


class Keeper:
    """One for all runs of the process: a renewal for all of them is one call to the store."""

    def __init__(
        self,
        store: RunStateStore,
        owner_id: str,
        timing: Timing,
        touch: InTouch,
        windows: TrustWindows | None = None,
    ) -> None:
        self._has_leases = isinstance(store, LeaseStore)
        self._holdings = Holdings(timing, windows)
        rounds = partial(
            Rounds, holdings=self._holdings, owner_id=owner_id, timing=timing, touch=touch
        )
        self._place: Place
        if self._has_leases and isinstance(store, KeptApart):
            self._place = Apart(store, self._holdings, rounds, timing.pace)
        else:
            self._place = _Here(partial(rounds, store))
        self._alarm: asyncio.TimerHandle | None = None

    def hold(
        self,
        run_id: str,
        lease: Lease | None,
        sent_at: float,
        canceled: Callable[[], None],
        lost: Callable[[str], None],
    ) -> Holding:
        """``sent_at`` is the loop's time when the claim was sent, not when it was answered."""
        if not self._has_leases:
            lease = None
        holding = Holding(run_id, lease, sent_at, canceled, lost)
        rested = self._holdings.add(holding)
        self._place.begin(rested=rested)
        if self._alarm is None or holding.trusted_until < self._alarm.when():
            self._set_alarm(holding.trusted_until)
        return holding

    def drop(self, holding: Holding) -> None:
        if self._holdings.drop(holding):
            self._set_alarm(inf)

    def look_now(self) -> None:
        """A hint that an operator may have said something; carries no state, may be lost."""
        self._place.look_now()

    async def close(self) -> None:
        self._set_alarm(inf)
        await self._place.close()

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        loop = asyncio.get_running_loop()
        self._alarm = None if at == inf else loop.call_at(at, self._end_trust)

    def _end_trust(self) -> None:
        self._set_alarm(self._holdings.end_trust(asyncio.get_running_loop().time()))


class _Here:
    """In the event loop that drives the runs."""

    def __init__(self, new_rounds: Callable[..., Rounds]) -> None:
        self._new_rounds = new_rounds
        self._look_now = asyncio.Event()
        self._rounds: Rounds | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, *, rested: bool) -> None:
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._look_now = asyncio.Event()
            self._rounds = self._new_rounds(loop.call_soon, self._look_now)
            self._task = loop.create_task(self._rounds.go())

    def look_now(self) -> None:
        self._look_now.set()

    async def close(self) -> None:
        if self._task is not None and self._rounds is not None:
            self._rounds.end()
            await end(self._task)
