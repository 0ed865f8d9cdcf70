"""Keeps the leases of this process's runs alive, and hears what operators ask of them.

The holder trusts a lease until *the moment its last successful renewal was sent*, plus the
duration, minus a margin in which its tasks can be ended. Past that somebody else may hold the run,
whatever we believe: its tasks are stopped before the lease can expire, not after. No answer is
waited for beyond that moment. A transport that can end them without us (``TrustWindows``) is told
of each such moment: it does so if we are frozen or killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf

from msgspec import Struct

from tenure.model.leasing import Lease
from tenure.model.query import RunFilter
from tenure.ports.lease_store import LeaseStore
from tenure.ports.run_store import RunStateStore
from tenure.ports.trust import TrustWindows
from tenure.runtime.stop import NOT_RENEWED
from tenure.runtime.waiting import happens_within

_log = logging.getLogger("tenure.runtime")


class Timing(Struct, frozen=True, kw_only=True):
    """Seconds. Refused when it cannot work, naming the broken rule."""

    lease_duration: float = 60.0
    renew_interval: float = 20.0
    control_interval: float = 0.5
    margin: float | None = None
    """To end tasks in, before the lease can expire. ``None``: eight seconds, and of a short lease a
    quarter."""

    def __post_init__(self) -> None:
        if not 0 < self.renew_interval <= self.lease_duration / 2:
            raise ValueError(
                f"renew_interval ({self.renew_interval:g}s) must be more than zero and at most "
                f"half of lease_duration ({self.lease_duration:g}s)"
            )
        if not self.control_interval > 0:
            raise ValueError(f"control_interval ({self.control_interval:g}s) must be above zero")
        if self.margin is not None and not self.margin >= 0:
            raise ValueError(f"margin ({self.margin:g}s) must not be negative")

    @property
    def trust(self) -> float:
        """Seconds a renewal is trusted for: room for a whole renewal to be missed, at least."""
        margin = min(8.0, self.lease_duration / 4) if self.margin is None else self.margin
        return max(self.lease_duration - margin, self.renew_interval * 1.5)


class Holding:
    """One run this process drives. Without a lease there is nothing to renew or to lose in time."""

    __slots__ = ("canceled", "lease", "lost", "run_id", "trusted_until")

    def __init__(
        self,
        run_id: str,
        lease: Lease | None,
        trusted_until: float,
        canceled: Callable[[], None],
        lost: Callable[[str], None],
    ) -> None:
        self.run_id = run_id
        self.lease = lease
        self.trusted_until = trusted_until
        self.canceled = canceled
        self.lost = lost


class Keeper:
    """One loop for all runs of the process: a renewal for all of them is one call to the store."""

    def __init__(
        self,
        store: RunStateStore,
        owner_id: str,
        timing: Timing,
        windows: TrustWindows | None = None,
    ) -> None:
        self._store = store
        self._leases = store if isinstance(store, LeaseStore) else None
        self._owner_id = owner_id
        self._timing = timing
        self._windows = windows
        self._held: dict[str, Holding] = {}
        self._look_now = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._renew_at = 0.0
        self._out_of_touch = False

    def hold(
        self,
        run_id: str,
        lease: Lease | None,
        sent_at: float,
        canceled: Callable[[], None],
        lost: Callable[[str], None],
    ) -> Holding:
        """``sent_at`` is the loop's time when the claim was sent, not when it was answered."""
        if self._leases is None:
            lease = None
        until = inf if lease is None else sent_at + self._timing.trust
        holding = self._held[run_id] = Holding(run_id, lease, until, canceled, lost)
        self._tell_trust(holding)
        if self._keeping is None or self._keeping.done():
            self._renew_at = sent_at + self._timing.renew_interval
            self._keeping = asyncio.create_task(self._keep())
        return holding

    def drop(self, holding: Holding) -> None:
        if self._held.get(holding.run_id) is holding:
            del self._held[holding.run_id]
            if self._windows is not None:
                self._windows.forget(holding.run_id)

    def look_now(self) -> None:
        """A hint that an operator may have said something; carries no state, may be lost."""
        self._look_now.set()

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while self._held:
            await happens_within(self._look_now, self._until_next(loop.time()))
            self._look_now.clear()
            self._give_up_untrusted(loop.time())  # we may have been frozen until now
            try:
                async with asyncio.timeout_at(self._answer_by(loop.time())):
                    if self._leases is not None and loop.time() >= self._renew_at:
                        await self._renew(self._leases, loop.time())
                    else:
                        await self._look_for_requests()
            except Exception as error:  # noqa: BLE001  whatever it is, leases must be tried again
                self._note_out_of_touch(error)
            else:
                self._out_of_touch = False
            self._give_up_untrusted(loop.time())

    def _until_next(self, now: float) -> float:
        """Never later than the next renewal and the next end of trust; what is overdue already is
        tried again at the usual pace."""
        moments = [self._renew_at, *(each.trusted_until for each in self._held.values())]
        ahead = (moment - now for moment in moments if moment > now)
        pace = min(self._timing.control_interval, self._timing.renew_interval)
        return min(pace, *ahead, inf)

    def _answer_by(self, now: float) -> float:
        trusted = (each.trusted_until for each in self._held.values() if each.trusted_until > now)
        return min(now + self._timing.renew_interval, *trusted, inf)

    async def _renew(self, store: LeaseStore, sent_at: float) -> None:
        held = [(each, each.lease) for each in self._held.values() if each.lease is not None]
        leases = [lease for _, lease in held]
        renewals = await store.renew_leases(leases, self._timing.lease_duration)
        self._renew_at = sent_at + self._timing.renew_interval
        for (holding, _), renewal in zip(held, renewals, strict=True):
            if self._held.get(renewal.run_id) is not holding:
                continue  # it ended meanwhile
            if not renewal.ok:
                holding.lost("another owner has it")
                continue
            holding.trusted_until = sent_at + self._timing.trust
            self._tell_trust(holding)
            if renewal.cancel_requested_at is not None:
                holding.canceled()

    def _tell_trust(self, holding: Holding) -> None:
        if self._windows is not None:
            margin = self._timing.lease_duration - self._timing.trust
            self._windows.trust(holding.run_id, holding.trusted_until, margin)

    async def _look_for_requests(self) -> None:
        """One question for all runs of this owner, read only."""
        where = RunFilter(owner_id=self._owner_id)
        cursor = None
        while True:
            page = await self._store.list_runs(where, limit=500, cursor=cursor)
            for run in page.items:
                holding = self._held.get(run.run_id)
                if holding is not None and run.cancel_requested_at is not None:
                    holding.canceled()
            cursor = page.cursor
            if cursor is None:
                return

    def _give_up_untrusted(self, now: float) -> None:
        for holding in list(self._held.values()):
            if now >= holding.trusted_until:
                holding.lost(NOT_RENEWED)

    def _note_out_of_touch(self, error: Exception) -> None:
        if not self._out_of_touch:
            self._out_of_touch = True
            _log.warning(
                "the store does not answer for the leases of %d runs (%s); their tasks are stopped "
                "if it does not before the leases end",
                len(self._held),
                str(error) or type(error).__name__,
            )
