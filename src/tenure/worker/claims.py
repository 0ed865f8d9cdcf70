"""What a worker does all day: claim as much as there is room for, wait, and in the end drain."""

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

# Owners whose process can be seen from here: that one of them is gone is noticed without asking
# the store anything.


_THERE = (Presence.ALIVE, Presence.ENDING)


class Neighbours:
    """``gone`` are those whose process is gone for certain, with all that it had started here."""

    def __init__(self, presence: Callable[[str], Presence]) -> None:
        self._presence = presence
        self._there: set[str] = set()
        self.gone: frozenset[str] = frozenset()

    def meet(self, owners: Iterable[str]) -> None:
        """Those that there are now. Whoever is not among them has nothing any more, and is
        forgotten."""
        seen = {owner: self._presence(owner) for owner in owners}
        self._there = {owner for owner, how in seen.items() if how in _THERE}
        self.gone = frozenset(owner for owner, how in seen.items() if how is Presence.GONE)

    def look(self) -> bool:
        """Whether one of them has gone since. (Nobody comes back: an owner is one start of a
        process.)"""
        gone = {owner for owner in self._there if self._presence(owner) is Presence.GONE}
        self._there -= gone
        self.gone |= gone
        return bool(gone)


# Asking the store for runs to execute.


class Claims:
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
        """Whether runs have an owner whose process is gone for certain: such leases count as ended
        at once."""
        owners = {
            each.owner_id
            for each in await owned_runs(self._session.store)
            if each.owner_id is not None and each.recovery is Recovery.RESUME
        }
        ours = {self._session.identity.owner_id}
        self._neighbours.meet((owners | await self._workers()) - ours)
        return not owners.isdisjoint(self._neighbours.gone)

    def a_neighbour_died(self) -> bool:
        """Since the last look, as far as can be seen without asking the store."""
        return self._neighbours.look()

    async def _workers(self) -> set[str]:
        """They may have runs by the time they die. (Where somebody else attends to the store, it
        costs too much to ask for all of them: those that have runs must do.)"""
        store = self._session.store
        if self._session.attended or not isinstance(store, WorkerRegistry):
            return set()
        return {worker.owner_id for worker in await store.list_workers()}

    async def next(self, limit: int) -> list[RunClaim]:
        """Up to ``limit`` runs that are ours from now on. Sent again after an error it is the same
        claim, and takes no expired lease: their owners may have met that error too."""
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

        def be_careful(error: StoreUnavailable) -> None:
            nonlocal request
            request = replace(request, expired=False)
            self._note_trouble(error)

        def send() -> Awaitable[list[ClaimedRun]]:
            return self._touch.asked(self._store.claim_runs(request))

        sent_at = asyncio.get_running_loop().time()
        self._touch.asks()
        claimed = await until_answered(send, ENDLESS, be_careful)
        if claimed or request.expired:
            self._answered()
        return [RunClaim(run, sent_at) for run in claimed]

    async def this_one(self, run_id: str) -> RunClaim:
        """``RunNotFound``, ``LeaseHeld``, ``NotRunnable``, and ``StoreUnavailable`` at once: it is
        found again."""
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
            self._note_trouble(error)
            raise
        return RunClaim(claimed, sent_at)

    async def give_back(self, claims: Sequence[RunClaim]) -> None:
        """Those we got when nobody wanted them any more: for others to claim at once."""
        for lease in (claim.run.lease for claim in claims):
            with suppress(TenureError):  # else they wait for the lease to end
                new_id = self._session.identity.new_id()
                await self._store.release_lease(lease.run_id, lease.fencing, new_id)

    def _note_trouble(self, error: StoreUnavailable) -> None:
        if not self._out_of_touch:
            self._out_of_touch = True
            _log.warning("the store does not answer (%s); nothing is claimed until it does", error)

    def _answered(self) -> None:
        """A claim that took nothing and left expired leases alone is no sign of it: it wrote
        nothing, and of a full disk that goes well."""
        if self._out_of_touch:
            self._out_of_touch = False
            _log.warning("the store answers again")


# Who may claim, and how much.


class Capacity:
    """For ``most`` runs at once. Claims are made one after another, whether by looking at the store
    or on a hint: so none takes room that another counts on, or what another just got."""

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
        """For how many there is room meanwhile."""
        async with self._claiming:
            yield self.left
            if not self.left:
                self._nothing_waits.clear()

    def looked(self, *, found_all: bool) -> None:
        """At the store, with room. ``found_all``: nothing more was there."""
        if found_all and self.left:
            self._nothing_waits.set()
        else:
            self._nothing_waits.clear()

    async def for_hints(self) -> int:
        """Waits until there is room that nothing in the store wants: what waits there has its
        order, and a hint would jump the queue."""
        await self._nothing_waits.wait()
        return self.left

    def close(self) -> None:
        """There is none from now on."""
        self.closed = True
        self._nothing_waits.clear()

    async def quiet(self) -> None:
        """Nothing is being claimed any more when this returns."""
        async with self._claiming:
            pass


# A run that waits alone is begun in the very commit that claims it.
#
# That is how most runs meet an idle worker, and it spares them a commit and a trip. Where several
# wait, or one that somebody has begun before, they are claimed: each worker then gets others.


class Lone:
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
        """The run that waits, or none; ``None``: whatever it is, it is to be claimed."""
        if self._store is None:
            return None
        try:
            return await self._touch.asked(self._seen(self._store))
        except Exception:  # noqa: BLE001  (whoever claims it says what is wrong)
            return None

    async def _seen(self, store: Beginnings) -> list[Work] | None:
        found = await store.find_waiting(self._queues, limit=2)
        if len(found) > 1:  # one may be about to begin here: the other waits all the same
            return None
        if not found or found[0].snapshot.run_id in self._shift:
            return []  # nothing, or what was seen before its beginning was written
        if not self._can_begin(found[0].snapshot):
            return None
        return [replace(await self._preparing.work(found[0]), waits=store)]

    def _can_begin(self, run: RunSnapshot) -> bool:
        """Else it is claimed first, and what becomes of it then is decided."""
        waits = run.status is RunStatus.QUEUED and run.cancel_requested_at is None
        return waits and not run.takeovers and not self._shift.has_tried(run.run_id)


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


class ClaimLoop:
    """``wake`` is set when there may be something to claim, or room for it."""

    def __init__(
        self,
        claims: Claims,
        lone: Lone,
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
        self._giving_up: asyncio.Task[None] | None = None
        self._draining = False
        self._at_once = False
        self._claim_by = 0.0
        """Loop time from when on it is not enough to see whether a run waits alone: leases may have
        ended."""
        self._look_by = 0.0
        """Loop time from when on neighbours are looked for again."""

    def drain(self, *, at_once: bool = False) -> None:
        """Claim nothing more; ``at_once``: wait for nothing to end by itself."""
        self._draining = True
        self._at_once |= at_once
        self._room.close()
        self._wake.set()
        if self._claiming is not None:
            asyncio.get_running_loop().call_later(_A_MOMENT, self._give_up, self._claiming)

    def heard(self) -> None:
        """A hint: there may be something to claim."""
        self._wake.set()

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
        if not await wait_for_event(self._wake, wait):
            self._claim_by = 0.0

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
        """Whether all were, as soon as that can be said."""
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
