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
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Protocol

from tenure.aio import end, wait_for_event
from tenure.model.leases import Lease
from tenure.model.query import RunFilter
from tenure.ports.execution import TrustWindows
from tenure.ports.leases import KeptApart, LeaseKeeping, LeaseStore
from tenure.ports.store import RunStateStore
from tenure.runtime.group_commit import InTouch
from tenure.runtime.lease_timing import Timing
from tenure.runtime.stop import NOT_RENEWED

# The runs that a process holds, as its two threads share them.
#
# A holding is *held* until it is *over*: dropped by whoever drives the run, or lost, of which its
# driver is told once. Who may do what:
#
# - the event loop that drives the runs adds and drops holdings, ends the trust in them when its
# time
#   has come, and calls their drivers: a driver hears nothing from another thread;
# - the keeper, in a thread of its own or in that loop, prolongs trust, and only in what is not
# over.
#   What is past its trust is not renewed any more: its tasks were told to end.
#
# A transport that ends tasks without us (``TrustWindows``) is told of each such moment under the
# same lock, so that its last word is ours, and none comes after the run was dropped.


class HeldLease:
    """One run. Without a lease there is nothing to renew, or to lose in time."""

    __slots__ = (
        "cancel_heard",
        "canceled",
        "lease",
        "lost",
        "over",
        "renewed_at",
        "run_id",
        "trusted_until",
    )

    def __init__(
        self,
        run_id: str,
        lease: Lease | None,
        renewed_at: float,
        canceled: Callable[[], None],
        lost: Callable[[str], None],
    ) -> None:
        """``renewed_at``: the loop's time when the claim was sent, not when it was answered."""
        self.run_id = run_id
        self.lease = lease
        self.renewed_at = renewed_at
        self.trusted_until = inf
        self.canceled = canceled
        self.lost = lost
        self.over = False
        self.cancel_heard = False


class HeldLeases:
    def __init__(self, timing: Timing, windows: TrustWindows | None = None) -> None:
        self._trusted_for = timing.trust
        self._margin = timing.lease_duration - timing.trust
        self._windows = windows
        self._lock = threading.Lock()
        self._held: dict[str, HeldLease] = {}
        self._resting = True

    def __len__(self) -> int:
        return len(self._held)

    # By the loop that drives the runs

    def add(self, holding: HeldLease) -> bool:
        """Whether nobody keeps what is held here: the keeper had nothing to do so far."""
        with self._lock:
            rested, self._resting = self._resting, False
            self._held[holding.run_id] = holding
            self._trust(holding)
            return rested

    def drop(self, holding: HeldLease) -> bool:
        """Whether nothing is held any more."""
        with self._lock:
            holding.over = True
            if self._held.get(holding.run_id) is holding:
                del self._held[holding.run_id]
                if self._windows is not None:
                    self._windows.forget(holding.run_id)
            return not self._held

    def lose(self, holding: HeldLease, why: str) -> None:
        with self._lock:
            over, holding.over = holding.over, True
        if not over:
            holding.lost(why)

    def cancel(self, holding: HeldLease) -> None:
        if not holding.over and not holding.cancel_heard:
            holding.cancel_heard = True
            holding.canceled()

    def end_trust(self, now: float) -> float:
        """Whatever was not renewed in time is lost. When to be back."""
        for holding in self._all():
            if now >= holding.trusted_until:
                self.lose(holding, NOT_RENEWED)
        return min((each.trusted_until for each in self._all() if not each.over), default=inf)

    # By the keeper

    def rest(self) -> bool:
        """Whether nothing is held; whoever adds to it has to wake the keeper again."""
        with self._lock:
            self._resting = not self._held
            return self._resting

    def find(self, run_id: str) -> HeldLease | None:
        return self._held.get(run_id)

    def renewable(self, now: float) -> list[tuple[HeldLease, Lease]]:
        return [
            (each, each.lease)
            for each in self._all()
            if each.lease is not None and not each.over and now < each.trusted_until
        ]

    def prolong(self, holding: HeldLease, sent_at: float) -> None:
        """A renewal that was sent then has succeeded."""
        with self._lock:
            if not holding.over:
                holding.renewed_at = sent_at
                self._trust(holding)

    def _all(self) -> list[HeldLease]:
        with self._lock:
            return list(self._held.values())

    def _trust(self, holding: HeldLease) -> None:
        if holding.lease is not None:
            holding.trusted_until = holding.renewed_at + self._trusted_for
        if self._windows is not None:
            self._windows.trust(holding.run_id, holding.trusted_until, self._margin)


# What a keeper does all the time: renew the leases, and look what operators ask for.
#
# The same in a thread of its own and in the event loop that drives the runs; only the way differs
# in which that loop is told. It answers roll calls, too: a loop that hangs must not hold runs for
# ever, so nothing is renewed while a call has stood unanswered for a renew interval. Its leases
# then end within their duration, its supervisor kills its tasks before that, and others go on.


Tell = Callable[[Callable[[], None]], object]
"""Has a function called by the event loop that drives the runs."""


class LoopCheck:
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


class RenewalLoop:
    """``look_now``: somebody may have asked for something."""

    def __init__(
        self,
        store: RunStateStore | LeaseKeeping,
        tell: Tell,
        look_now: asyncio.Event,
        holdings: HeldLeases,
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
        self._roll = LoopCheck(tell)
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
            await wait_for_event(self._look_now, self._until_next(time()))
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

    def _due(self, held: Sequence[tuple[HeldLease, Lease]]) -> float:
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
        self, store: LeaseKeeping, held: Sequence[tuple[HeldLease, Lease]], sent_at: float
    ) -> None:
        seconds = self._timing.lease_duration
        renewals = await store.renew_leases([lease for _, lease in held], seconds)
        self._tell(partial(self._touch.answered, sent_at))
        lost: list[HeldLease] = []
        canceled: list[HeldLease] = []
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

    def _pass_on(self, lost: Sequence[HeldLease], canceled: Sequence[HeldLease]) -> None:
        if lost or canceled:
            self._tell(partial(self._hear, lost, canceled))

    def _hear(self, lost: Sequence[HeldLease], canceled: Sequence[HeldLease]) -> None:
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


# A keeper with a thread, an event loop and a line to the store of its own.
#
# The thread is begun by the first look that is due: a process whose runs are over by then never has
# one. It sleeps while nothing is held. It ends when it is told to, or when the loop that it keeps
# for is gone; should it end otherwise, another takes its place, and what it could not renew in time
# is given up by that loop, which needs no thread for it.


_log = logging.getLogger("tenure.runtime")

NewRounds = Callable[[LeaseKeeping, Tell, asyncio.Event], RenewalLoop]


class Apart:
    """Of the loop that drives the runs: all is called there."""

    def __init__(
        self, store: KeptApart, holdings: HeldLeases, new_rounds: NewRounds, pace: float
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._new_rounds = new_rounds
        self._pace = pace
        self._due: asyncio.TimerHandle | None = None
        self._thread: RenewerThread | None = None

    def begin(self, *, rested: bool) -> None:
        thread, loop = self._thread, asyncio.get_running_loop()
        if thread is not None and thread.keeps_for is not loop:
            thread.end()
            thread, rested = None, True
        if not rested:
            return
        if thread is not None:
            thread.begin()
        else:
            self._start_later(loop)

    def look_now(self) -> None:
        if self._due is not None:
            self._start()
        if self._thread is not None:
            self._thread.look_now()

    async def close(self) -> None:
        if self._due is not None:
            self._due.cancel()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()
            if thread.keeps_for is asyncio.get_running_loop():  # else nobody can tell us
                await thread.ended.wait()

    def _start_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = None
        self._due = loop.call_later(self._pace, self._start)

    def _start(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._holdings.rest():
            return
        loop = asyncio.get_running_loop()
        thread = RenewerThread(self._store, self._new_rounds, loop, self._gone)
        try:
            thread.start()
        except RuntimeError as error:  # the system has none left
            _log.warning("no thread to keep leases in, tried again: %s", error)
            self._start_later(loop)
            return
        self._thread = thread
        thread.begin()

    def _gone(self, thread: RenewerThread) -> None:
        thread.join()
        thread.ended.set()
        if thread is self._thread:  # nobody told it to end
            self._thread = None
            if not self._holdings.rest():
                self._start_later(asyncio.get_running_loop())


class RenewerThread:
    """``gone`` is called by the loop it keeps for, once nothing of it is left but its thread."""

    def __init__(
        self,
        store: KeptApart,
        new_rounds: NewRounds,
        keeps_for: asyncio.AbstractEventLoop,
        gone: Callable[[RenewerThread], None],
    ) -> None:
        self.keeps_for = keeps_for
        self.ended = asyncio.Event()
        self._store = store
        self._new_rounds = new_rounds
        self._gone = gone
        self._loop = asyncio.new_event_loop()
        self._wanted = asyncio.Event()
        self._look_now = asyncio.Event()
        self._rounds: RenewalLoop | None = None
        self._serving: asyncio.Task[None] | None = None
        self._told_to_end = False
        self._ending: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="tenure-keeper", daemon=True)

    # From the loop it keeps for

    def start(self) -> None:
        """``RuntimeError`` if there can be no thread."""
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def begin(self) -> None:
        self._call(self._wanted.set)

    def look_now(self) -> None:
        self._call(self._look_now.set)

    def end(self) -> None:
        self._call(self._end)

    def join(self) -> None:
        self._thread.join()

    def _call(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # it has ended; ``gone`` is on its way
            self._loop.call_soon_threadsafe(act)

    # In the thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException:  # noqa: BLE001  nobody else would hear of it
            _log.exception("the thread that keeps leases has ended")
        finally:
            with suppress(RuntimeError):  # nobody is left to be told
                self.keeps_for.call_soon_threadsafe(self._gone, self)

    async def _serve(self) -> None:
        self._serving = asyncio.current_task()
        if self._told_to_end:
            return
        async with self._store.keeping() as store:
            self._rounds = self._new_rounds(store, self._tell, self._look_now)
            while not self._told_to_end:
                await self._wanted.wait()
                self._wanted.clear()
                await self._rounds.go()

    def _tell(self, act: Callable[[], None]) -> None:
        try:
            self.keeps_for.call_soon_threadsafe(act)
        except RuntimeError:  # that loop was closed, and took its runs with it
            self._end()

    def _end(self) -> None:
        if self._serving is not None and self._ending is None:
            self._ending = self._loop.create_task(end(self._serving))
        self._told_to_end = True
        self._wanted.set()
        if self._rounds is not None:
            self._rounds.end()


class Place(Protocol):
    """Where the rounds are made."""

    def begin(self, *, rested: bool) -> None:
        """There is something to keep; ``rested``: after a time when there was nothing."""
        ...

    def look_now(self) -> None: ...
    async def close(self) -> None: ...


class LeaseRenewer:
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
        self._holdings = HeldLeases(timing, windows)
        rounds = partial(
            RenewalLoop, holdings=self._holdings, owner_id=owner_id, timing=timing, touch=touch
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
    ) -> HeldLease:
        """``sent_at`` is the loop's time when the claim was sent, not when it was answered."""
        if not self._has_leases:
            lease = None
        holding = HeldLease(run_id, lease, sent_at, canceled, lost)
        rested = self._holdings.add(holding)
        self._place.begin(rested=rested)
        if self._alarm is None or holding.trusted_until < self._alarm.when():
            self._set_alarm(holding.trusted_until)
        return holding

    def drop(self, holding: HeldLease) -> None:
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

    def __init__(self, new_rounds: Callable[..., RenewalLoop]) -> None:
        self._new_rounds = new_rounds
        self._look_now = asyncio.Event()
        self._rounds: RenewalLoop | None = None
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
