"""Claiming runs: the claims themselves (``Claims``), the worker's free slots (``Capacity``), the
fast path for a single queued run (``LoneRun``), and the loop that claims, sleeps and drains
(``ClaimLoop``)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from tenure.aio import ENDLESS, end, until_answered, wait_for_event
from tenure.model.errors import StoreUnavailable, TenureError
from tenure.model.leases import ClaimedRun, ClaimRequest
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.model.update import LeaseRequest
from tenure.ports.leases import LeaseStore, Presence, WorkerRegistry
from tenure.ports.store import Beginnings
from tenure.runtime.group_commit import InTouch
from tenure.runtime.owners import owned_runs
from tenure.runtime.run import RunClaim, Work
from tenure.runtime.session import Session
from tenure.worker.runs import Pace, RunningRuns, RunPreparation

_NOT_GONE = (Presence.ALIVE, Presence.ENDING)


class Neighbours:
    """Owners on this machine, whose death is noticed without a call of the store. ``gone``: those
    whose process is known to be gone, with its tasks."""

    def __init__(self, presence: Callable[[str], Presence]) -> None:
        self._presence = presence
        self._there: set[str] = set()
        self.gone: frozenset[str] = frozenset()

    def meet(self, owners: Iterable[str]) -> None:
        """Replace the known owners; others have no runs any more."""
        seen = {owner: self._presence(owner) for owner in owners}
        self._there = {owner for owner, how in seen.items() if how in _NOT_GONE}
        self.gone = frozenset(owner for owner, how in seen.items() if how is Presence.GONE)

    def look(self) -> bool:
        """Whether one of them has died since. (An owner id is one start of a process and never
        returns.)"""
        gone = {owner for owner in self._there if self._presence(owner) is Presence.GONE}
        self._there -= gone
        self.gone |= gone
        return bool(gone)


class Claims:
    """Claims runs in the store."""

    def __init__(
        self,
        session: Session,
        store: LeaseStore,
        queues: tuple[str, ...],
        touch: InTouch,
    ) -> None:
        self._session = session
        self._store = store
        self._queues = queues
        self._touch = touch
        self._out_of_touch = False
        self._neighbours = Neighbours(session.identity.presence)

    async def look_for_the_dead(self) -> bool:
        """Whether any run has an owner whose process is known to be gone: such a lease counts as
        expired at once."""
        owners = {
            each.owner_id
            for each in await owned_runs(self._session.store)
            if each.owner_id is not None and each.recovery is Recovery.RESUME
        }
        ours = {self._session.identity.owner_id}
        self._neighbours.meet((owners | await self._workers()) - ours)
        return not owners.isdisjoint(self._neighbours.gone)

    def a_neighbour_died(self) -> bool:
        """Whether an owner on this machine died since the last look, without asking the store."""
        return self._neighbours.look()

    async def _workers(self) -> set[str]:
        """Registered workers, which may own runs when they die. Empty behind a gateway, where
        listing them costs too much: owners of runs have to do."""
        store = self._session.store
        if self._session.attended or not isinstance(store, WorkerRegistry):
            return set()
        return {worker.owner_id for worker in await store.list_workers()}

    async def next(self, limit: int) -> list[RunClaim]:
        """Claim up to ``limit`` runs. Sent again after an error it is the same claim, without
        expired leases, whose owners may have met that error too."""
        identity = self._session.identity
        request = ClaimRequest(
            owner_id=identity.owner_id,
            seconds=self._session.lease_seconds,
            claim_id=identity.new_id(),
            limit=limit,
            queues=self._queues,
            expired=self._touch.long_enough,
            dead_owners=self._neighbours.gone,
        )

        def leave_expired(error: StoreUnavailable) -> None:
            nonlocal request
            request = replace(request, expired=False)
            self._note_failure(error)

        def send() -> Awaitable[list[ClaimedRun]]:
            return self._touch.asked(self._store.claim_runs(request))

        sent_at = asyncio.get_running_loop().time()
        self._touch.asks()
        claimed = await until_answered(send, ENDLESS, leave_expired)
        if claimed or request.expired:
            self._answered()
        return [RunClaim(run, sent_at) for run in claimed]

    async def this_one(self, run_id: str) -> RunClaim:
        """Claim one run. Raises ``RunNotFound``, ``LeaseHeld``, ``NotRunnable``, and
        ``StoreUnavailable`` without a retry."""
        identity = self._session.identity
        request = LeaseRequest(
            owner_id=identity.owner_id,
            seconds=self._session.lease_seconds,
            claim_id=identity.new_id(),
            expired=self._touch.long_enough,
        )
        sent_at = asyncio.get_running_loop().time()
        try:
            claimed = await self._touch.asked(self._store.claim_run(run_id, request))
        except StoreUnavailable as error:
            self._note_failure(error)
            raise
        return RunClaim(claimed, sent_at)

    async def give_back(self, claims: Sequence[RunClaim]) -> None:
        """Release claims that are not needed any more, for other workers to claim at once."""
        for lease in (claim.run.lease for claim in claims):
            with suppress(TenureError):  # else the leases expire
                new_id = self._session.identity.new_id()
                await self._store.release_lease(lease.run_id, lease.fencing, new_id)

    def _note_failure(self, error: StoreUnavailable) -> None:
        if not self._out_of_touch:
            self._out_of_touch = True
            _log.warning("the store does not answer (%s); nothing is claimed until it does", error)

    def _answered(self) -> None:
        """Not called for a claim that took nothing and left expired leases alone: it wrote nothing,
        which succeeds even on a full disk."""
        if self._out_of_touch:
            self._out_of_touch = False
            _log.warning("the store answers again")


class Capacity:
    """Slots for ``most`` runs at once. Claims, by polling or on a hint, are made one after another,
    so that they never compete for a slot or a run."""

    def __init__(self, shift: RunningRuns, most: int) -> None:
        self._shift = shift
        self._most = most
        self._claiming = asyncio.Lock()
        self._nothing_waits = asyncio.Event()
        self.closed = False

    @property
    def left(self) -> int:
        return 0 if self.closed else self._most - len(self._shift)

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[int]:
        """Locks out other claims; yields the number of free slots."""
        async with self._claiming:
            yield self.left
            if not self.left:
                self._nothing_waits.clear()

    def looked(self, *, found_all: bool) -> None:
        """The store was polled with a free slot. ``found_all``: no further run is queued."""
        if found_all and self.left:
            self._nothing_waits.set()
        else:
            self._nothing_waits.clear()

    async def for_hints(self) -> int:
        """Wait until there are free slots and no run is queued in the store: queued runs have an
        order, and a hint would jump the queue."""
        await self._nothing_waits.wait()
        return self.left

    def close(self) -> None:
        """No slot is free from now on."""
        self.closed = True
        self._nothing_waits.clear()

    async def quiet(self) -> None:
        """Wait for the claim under way."""
        async with self._claiming:
            pass


class LoneRun:
    """Finds a run that is queued alone: it is claimed in the commit that begins it, which saves a
    commit and a round trip, and is the usual case of an idle worker. Several queued runs, or one
    that has begun before, are claimed first, so that each worker gets others."""

    def __init__(
        self,
        store: LeaseStore,
        queues: Sequence[str],
        preparing: RunPreparation,
        shift: RunningRuns,
        touch: InTouch,
    ) -> None:
        self._store = store if isinstance(store, Beginnings) else None
        self._queues = queues
        self._preparing = preparing
        self._shift = shift
        self._touch = touch

    async def look(self) -> list[Work] | None:
        """The queued run, or an empty list; ``None``: make a normal claim."""
        if self._store is None:
            return None
        try:
            return await self._touch.asked(self._seen(self._store))
        except Exception:  # noqa: BLE001  (a normal claim reports what is wrong)
            return None

    async def _seen(self, store: Beginnings) -> list[Work] | None:
        found = await store.find_waiting(self._queues, limit=2)
        if len(found) > 1:  # even if one is about to begin here
            return None
        if not found or found[0].snapshot.run_id in self._shift:
            return []  # no run, or one that is about to begin here
        if not self._can_begin(found[0].snapshot):
            return None
        return [replace(await self._preparing.work(found[0]), waits=store)]

    def _can_begin(self, run: RunSnapshot) -> bool:
        """Else it is claimed first."""
        waits = run.status is RunStatus.QUEUED and run.cancel_requested_at is None
        return waits and not run.takeovers and not self._shift.has_tried(run.run_id)


_log = logging.getLogger("tenure.worker")

_LAST_CLAIM_TIMEOUT_S = 1.0
"""For the claim under way when draining begins."""
_GIVING_BACK = 15.0
"""In this time at least one more run has to be given back; it includes the grace of tasks that
ignore requests to end, and the store's answer."""
_LEFT_TO_OTHERS = (
    "the next worker continues its runs: on this machine right away, on others when the "
    "leases have ended"
)
"""For the log of a worker that ends without giving its runs back."""


class ClaimLoop:
    """Claims runs while there are free slots, until drained. ``wake`` is set when a run may be
    queued or a slot free."""

    def __init__(
        self,
        claims: Claims,
        lone: LoneRun,
        shift: RunningRuns,
        room: Capacity,
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
        self._ending: asyncio.Task[None] | None = None
        self._draining = False
        self._at_once = False
        self._claim_by = 0.0
        """Loop time of the next normal claim, which also finds expired leases."""
        self._look_by = 0.0
        """Loop time of the next look at owners on this machine."""

    def drain(self, *, at_once: bool = False) -> None:
        """Claim nothing more; ``at_once``: do not wait for runs to end."""
        self._draining = True
        self._at_once |= at_once
        self._room.close()
        self._wake.set()
        if self._claiming is not None:
            asyncio.get_running_loop().call_later(
                _LAST_CLAIM_TIMEOUT_S, self._give_up, self._claiming
            )

    def heard(self) -> None:
        """A hint: there may be something to claim."""
        self._wake.set()

    async def run(self) -> bool:
        """Until drained and no run is left here; false if the store did not take all runs back."""
        while not self._draining:
            self._wake.clear()
            if self._room.left and await self._claim():
                continue
            if not self._draining:
                await self._sleep()
        return await self._finish()

    def _give_up(self, claiming: asyncio.Task[bool]) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(end(claiming))

    async def _claim(self) -> bool:
        """Whether there may be more to claim."""
        claiming = self._claiming = asyncio.create_task(self._take())
        try:
            # Not ``await claiming``: a cancellation would reach it, and it ignores errors.
            await asyncio.wait([claiming])
        finally:
            self._claiming = None
            await end(claiming)
        if claiming.cancelled():
            return False  # unknown whether runs were claimed; their leases will expire
        return claiming.result()

    async def _take(self) -> bool:
        async with self._room.claiming() as left:
            asked = min(left, self._pace.claim_batch)
            if not asked:
                return False
            now = asyncio.get_running_loop().time()
            if self._neighbour_died(now):
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

    def _neighbour_died(self, now: float) -> bool:
        """Whether an owner on this machine died, whose leases can be claimed. It reads some files
        of /proc, which is too much for every claim."""
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
        """Randomised, so that workers do not poll at the same moment."""
        return self._pace.poll_interval * random.uniform(0.75, 1.25)  # noqa: S311

    async def _sleep(self) -> None:
        """Until the next claim is due; runs that come with hints meanwhile do not postpone it."""
        now = asyncio.get_running_loop().time()
        wait = self._claim_by - now
        if wait <= 0:  # no slot was free
            wait = self._interval()
        self._touch.rests(now + wait)
        if not await wait_for_event(self._wake, wait):
            self._claim_by = 0.0

    async def _finish(self) -> bool:
        with suppress(TimeoutError):  # a claim on a hint may wait for the store in vain
            async with asyncio.timeout(2 * _LAST_CLAIM_TIMEOUT_S):
                await self._room.quiet()
        time = asyncio.get_running_loop().time
        deadline = time() + self._pace.drain_timeout
        if len(self._shift):
            _log.info("draining: %d of its runs have not ended", len(self._shift))
        while len(self._shift) and not self._at_once and time() < deadline:
            self._wake.clear()
            await wait_for_event(self._wake, deadline - time())
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
        """Wait until all runs are given back; false if the store takes none for too long."""
        time, left = asyncio.get_running_loop().time, len(self._shift)
        deadline = time() + _GIVING_BACK
        while left:
            self._wake.clear()
            await wait_for_event(self._wake, deadline - time())
            if len(self._shift) < left:
                left, deadline = len(self._shift), time() + _GIVING_BACK
            elif time() >= deadline:
                runs = "1 run" if left == 1 else f"{left} runs"
                _log.warning("the store does not take %s back: %s", runs, _LEFT_TO_OTHERS)
                return False
        return True
