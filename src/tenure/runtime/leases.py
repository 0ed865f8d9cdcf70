"""Renews the leases of this process's runs, and passes on cancel requests of operators.

A lease is trusted from *the moment its last successful renewal was sent* for its duration minus a
margin in which its tasks can be ended. After that another owner may hold the run: its tasks are
stopped before the lease can expire, not after.

Renewals are made in a thread of their own where the store supports it (``KeptApart``), so that
nothing in this process can delay them, else in the event loop that drives the runs. That loop
gives up a run whose lease was not renewed in time, independently of the renewals.
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
from tenure.runtime.options import Timing
from tenure.runtime.stop import NOT_RENEWED


class HeldLease:
    """A run held by this process, until it is ``over``: dropped by its driver, or lost. Without a
    lease there is nothing to renew and no time at which it is lost."""

    __slots__ = (
        "cancel_delivered",
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
        self.cancel_delivered = False


class HeldLeases:
    """The runs a process holds, shared by two threads.

    The event loop that drives the runs adds and drops them, ends the trust in them, and calls
    ``canceled`` and ``lost``. The renewal thread only prolongs trust, and only of leases that are
    not over: one past its trust is not renewed, since its tasks are being ended.

    A transport that ends tasks by itself (``TrustWindows``) is informed under the same lock, so
    that calls arrive in order and none after the run was dropped.
    """

    def __init__(self, timing: Timing, windows: TrustWindows | None = None) -> None:
        self._trusted_for = timing.trust
        self._margin = timing.lease_duration - timing.trust
        self._windows = windows
        self._lock = threading.Lock()
        self._held: dict[str, HeldLease] = {}
        self._idle = True

    def __len__(self) -> int:
        return len(self._held)

    # Called in the loop that drives the runs.

    def add(self, holding: HeldLease) -> bool:
        """Whether the renewal loop was idle and has to be started."""
        with self._lock:
            was_idle, self._idle = self._idle, False
            self._held[holding.run_id] = holding
            self._trust(holding)
            return was_idle

    def drop(self, holding: HeldLease) -> bool:
        """Whether no run is held any more."""
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
        if not holding.over and not holding.cancel_delivered:
            holding.cancel_delivered = True
            holding.canceled()

    def end_trust(self, now: float) -> float:
        """Lose what was not renewed in time; the loop time of the next call."""
        for holding in self._all():
            if now >= holding.trusted_until:
                self.lose(holding, NOT_RENEWED)
        return min((each.trusted_until for each in self._all() if not each.over), default=inf)

    # Called by the renewal loop.

    def is_idle(self) -> bool:
        """Whether no run is held; then ``add`` tells its caller to start the renewal loop again."""
        with self._lock:
            self._idle = not self._held
            return self._idle

    def find(self, run_id: str) -> HeldLease | None:
        return self._held.get(run_id)

    def renewable(self, now: float) -> list[tuple[HeldLease, Lease]]:
        return [
            (each, each.lease)
            for each in self._all()
            if each.lease is not None and not each.over and now < each.trusted_until
        ]

    def prolong(self, holding: HeldLease, sent_at: float) -> None:
        """A renewal sent at loop time ``sent_at`` has succeeded."""
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


CallInLoop = Callable[[Callable[[], None]], object]
"""Schedules a function in the event loop that drives the runs."""


class LoopCheck:
    """Whether the loop that drives the runs still responds.

    A loop that hangs must not hold runs for ever: nothing is renewed while a call has been
    unanswered for a renew interval. The leases then end within their duration, the supervisor kills
    the tasks before that, and other workers continue the runs.
    """

    def __init__(self, call_in_loop: CallInLoop) -> None:
        self._call_in_loop = call_in_loop
        self._asked_at: float | None = None

    def call(self, now: float) -> None:
        if self._asked_at is None:
            self._asked_at = now
            self._call_in_loop(self._answer)

    def silent_for(self, now: float) -> float:
        return 0.0 if self._asked_at is None else now - self._asked_at

    def _answer(self) -> None:
        self._asked_at = None


class RenewalLoop:
    """Renews all leases at the usual pace and looks for cancel requests, in a thread of its own or
    in the loop that drives the runs. ``look_now`` is set when an operator may have made a
    request."""

    def __init__(
        self,
        store: RunStateStore | LeaseKeeping,
        call_in_loop: CallInLoop,
        look_now: asyncio.Event,
        held_leases: HeldLeases,
        owner_id: str,
        timing: Timing,
        touch: InTouch,
    ) -> None:
        self._store = store
        self._leases = store if isinstance(store, LeaseKeeping) else None
        self._call_in_loop = call_in_loop
        self._held_leases = held_leases
        self._owner_id = owner_id
        self._timing = timing
        self._touch = touch
        """Belongs to the loop that drives the runs: used through ``call_in_loop`` only."""
        self._loop_check = LoopCheck(call_in_loop)
        self._look_now = look_now
        self._warned: set[str] = set()
        self._last_failure_at = -inf
        """Loop time. A failure counts as over after a whole interval without another, so that a
        full disk, which takes one write and refuses the next, is logged once."""
        self._over = False

    def end(self) -> None:
        """Make no further call. (Cancelling alone is not enough: a client whose answer arrives at
        that moment may swallow it.)"""
        self._over = True
        self._look_now.set()

    async def go(self) -> None:
        """Renew until no run is held."""
        time = asyncio.get_running_loop().time
        while not (self._over or self._held_leases.is_idle()):
            self._loop_check.call(time())
            await wait_for_event(self._look_now, self._until_next(time()))
            self._look_now.clear()
            await self._round(time())

    async def _round(self, now: float) -> None:
        """One call for all runs. It times out before one of them is no longer trusted, and before
        the next renewal would be late by more than half an interval."""
        held = self._held_leases.renewable(now)
        due = self._due(held)
        renews = due <= now and self._loop_answers(now)
        ends = (holding.trusted_until for holding, _ in held)
        seconds = self._timing.renew_interval if renews else self._timing.renew_interval / 2
        try:
            async with asyncio.timeout_at(min([now + seconds, *ends])):
                if renews and self._leases is not None:
                    await self._renew(self._leases, held, now)
                else:
                    await self._look_for_requests()
        except Exception as error:  # noqa: BLE001  whatever it is, leases must be tried again
            self._call_in_loop(self._touch.lost)
            self._warn_once(
                "the store does not answer for the leases of %s (%s); their tasks are stopped "
                "if it does not before the leases end",
                _reason(error),
            )
        else:
            went_well = now >= self._last_failure_at + self._timing.renew_interval
            if self._warned and went_well and (renews or not held):
                self._warned.clear()
                if held:  # else the leases the warning was about are no longer held
                    _log.warning("leases are renewed as usual again")

    def _until_next(self, now: float) -> float:
        """Seconds; not later than the next renewal. An overdue one is tried at the usual pace."""
        due = self._due(self._held_leases.renewable(now))
        return min(self._timing.pace, due - now if due > now else inf)

    def _due(self, held: Sequence[tuple[HeldLease, Lease]]) -> float:
        oldest = min((holding.renewed_at for holding, _ in held), default=inf)
        return oldest + self._timing.renew_interval

    def _loop_answers(self, now: float) -> bool:
        silent = self._loop_check.silent_for(now)
        if silent < self._timing.renew_interval:
            return True
        self._warn_once(
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
        self._call_in_loop(partial(self._touch.answered, sent_at))
        lost: list[HeldLease] = []
        canceled: list[HeldLease] = []
        for (holding, _), renewal in zip(held, renewals, strict=True):
            if not renewal.ok:
                lost.append(holding)
                continue
            if not renewal.busy:  # else it stays overdue and is tried again
                self._held_leases.prolong(holding, sent_at)
            if renewal.cancel_requested_at is not None and not holding.cancel_delivered:
                canceled.append(holding)
        self._pass_on(lost, canceled)

    async def _look_for_requests(self) -> None:
        """One read for all runs of this owner. (Stores that ignore the filter's condition list
        other runs too.)"""
        where = RunFilter(owner_id=self._owner_id, canceling=True)
        cursor = None
        while True:
            page = await self._store.list_runs(where, limit=500, cursor=cursor)
            found = (self._held_leases.find(x.run_id) for x in page.items if x.cancel_requested_at)
            self._pass_on([], [each for each in found if each and not each.cancel_delivered])
            cursor = page.cursor
            if cursor is None:
                return

    def _pass_on(self, lost: Sequence[HeldLease], canceled: Sequence[HeldLease]) -> None:
        if lost or canceled:
            self._call_in_loop(partial(self._deliver, lost, canceled))

    def _deliver(self, lost: Sequence[HeldLease], canceled: Sequence[HeldLease]) -> None:
        for holding in lost:
            self._held_leases.lose(holding, "another owner has it")
        for holding in canceled:
            self._held_leases.cancel(holding)

    def _warn_once(self, words: str, why: str) -> None:
        """Log a warning once until it is over; not if the last run was dropped meanwhile."""
        self._last_failure_at = asyncio.get_running_loop().time()
        runs = len(self._held_leases)
        if runs and words not in self._warned:
            self._warned.add(words)
            _log.warning(words, f"{runs} run{'s'[: runs != 1]}", why)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):  # our own time-out
        return "no answer in time"
    return str(error) or type(error).__name__


_log = logging.getLogger("tenure.runtime")

NewRenewalLoop = Callable[[LeaseKeeping, CallInLoop, asyncio.Event], RenewalLoop]


class RenewalInThread:
    """Renewals in a thread with an event loop and a store connection of its own. All methods are
    called in the loop that drives the runs.

    The thread starts when the first look is due: a process whose runs are over by then never has
    one. It sleeps while no run is held, and ends when told to or when the loop that drives the runs
    is closed. If it ends otherwise, another is started; what was not renewed in time meanwhile is
    given up by the loop that drives the runs.
    """

    def __init__(
        self,
        store: KeptApart,
        held_leases: HeldLeases,
        new_renewal_loop: NewRenewalLoop,
        pace: float,
    ) -> None:
        self._store = store
        self._held_leases = held_leases
        self._new_renewal_loop = new_renewal_loop
        self._pace = pace
        self._due: asyncio.TimerHandle | None = None
        self._thread: RenewerThread | None = None

    def begin(self, *, was_idle: bool) -> None:
        thread, loop = self._thread, asyncio.get_running_loop()
        if thread is not None and thread.runs_loop is not loop:
            thread.end()
            thread, was_idle = None, True
        if not was_idle:
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
            if thread.runs_loop is asyncio.get_running_loop():  # else ``gone`` is not called here
                await thread.ended.wait()

    def _start_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = None
        self._due = loop.call_later(self._pace, self._start)

    def _start(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._held_leases.is_idle():
            return
        loop = asyncio.get_running_loop()
        thread = RenewerThread(self._store, self._new_renewal_loop, loop, self._gone)
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
        if thread is self._thread:  # it ended by itself
            self._thread = None
            if not self._held_leases.is_idle():
                self._start_later(asyncio.get_running_loop())


class RenewerThread:
    """``gone`` is called in ``runs_loop``, the loop that drives the runs, when the thread ends."""

    def __init__(
        self,
        store: KeptApart,
        new_renewal_loop: NewRenewalLoop,
        runs_loop: asyncio.AbstractEventLoop,
        gone: Callable[[RenewerThread], None],
    ) -> None:
        self.runs_loop = runs_loop
        self.ended = asyncio.Event()
        self._store = store
        self._new_renewal_loop = new_renewal_loop
        self._gone = gone
        self._loop = asyncio.new_event_loop()
        self._has_work = asyncio.Event()
        self._look_now = asyncio.Event()
        self._renewal_loop: RenewalLoop | None = None
        self._serving: asyncio.Task[None] | None = None
        self._end_requested = False
        self._ending: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="tenure-keeper", daemon=True)

    # Called in the loop that drives the runs.

    def start(self) -> None:
        """``RuntimeError`` if there can be no thread."""
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def begin(self) -> None:
        self._call(self._has_work.set)

    def look_now(self) -> None:
        self._call(self._look_now.set)

    def end(self) -> None:
        self._call(self._end)

    def join(self) -> None:
        self._thread.join()

    def _call(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # it has ended; ``gone`` is on its way
            self._loop.call_soon_threadsafe(act)

    # In the thread.

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException:  # noqa: BLE001  it would be lost with the thread
            _log.exception("the thread that keeps leases has ended")
        finally:
            with suppress(RuntimeError):  # that loop is closed
                self.runs_loop.call_soon_threadsafe(self._gone, self)

    async def _serve(self) -> None:
        self._serving = asyncio.current_task()
        if self._end_requested:
            return
        async with self._store.keeping() as store:
            self._renewal_loop = self._new_renewal_loop(store, self._call_in_loop, self._look_now)
            while not self._end_requested:
                await self._has_work.wait()
                self._has_work.clear()
                await self._renewal_loop.go()

    def _call_in_loop(self, act: Callable[[], None]) -> None:
        try:
            self.runs_loop.call_soon_threadsafe(act)
        except RuntimeError:  # that loop is closed, and its runs are gone with it
            self._end()

    def _end(self) -> None:
        if self._serving is not None and self._ending is None:
            self._ending = self._loop.create_task(end(self._serving))
        self._end_requested = True
        self._has_work.set()
        if self._renewal_loop is not None:
            self._renewal_loop.end()


class RenewalPlace(Protocol):
    """Where renewals are made: in a thread, or in the loop that drives the runs."""

    def begin(self, *, was_idle: bool) -> None:
        """A run is held; ``was_idle``: none was before."""
        ...

    def look_now(self) -> None: ...
    async def close(self) -> None: ...


class LeaseRenewer:
    """Holds the leases of all runs of the process: one renewal of all is one call of the store."""

    def __init__(
        self,
        store: RunStateStore,
        owner_id: str,
        timing: Timing,
        touch: InTouch,
        windows: TrustWindows | None = None,
    ) -> None:
        self._has_leases = isinstance(store, LeaseStore)
        self._held_leases = HeldLeases(timing, windows)
        rounds = partial(
            RenewalLoop,
            held_leases=self._held_leases,
            owner_id=owner_id,
            timing=timing,
            touch=touch,
        )
        self._renewal: RenewalPlace
        if self._has_leases and isinstance(store, KeptApart):
            self._renewal = RenewalInThread(store, self._held_leases, rounds, timing.pace)
        else:
            self._renewal = _RenewalInLoop(partial(rounds, store))
        self._trust_timer: asyncio.TimerHandle | None = None

    def hold(
        self,
        run_id: str,
        lease: Lease | None,
        sent_at: float,
        canceled: Callable[[], None],
        lost: Callable[[str], None],
    ) -> HeldLease:
        """``sent_at``: the loop's time when the claim was sent, not when it was answered."""
        if not self._has_leases:
            lease = None
        holding = HeldLease(run_id, lease, sent_at, canceled, lost)
        was_idle = self._held_leases.add(holding)
        self._renewal.begin(was_idle=was_idle)
        if self._trust_timer is None or holding.trusted_until < self._trust_timer.when():
            self._set_trust_timer(holding.trusted_until)
        return holding

    def drop(self, holding: HeldLease) -> None:
        if self._held_leases.drop(holding):
            self._set_trust_timer(inf)

    def look_now(self) -> None:
        """A hint that an operator may have made a request; carries no state, may be lost."""
        self._renewal.look_now()

    async def close(self) -> None:
        self._set_trust_timer(inf)
        await self._renewal.close()

    def _set_trust_timer(self, at: float) -> None:
        if self._trust_timer is not None:
            self._trust_timer.cancel()
        loop = asyncio.get_running_loop()
        self._trust_timer = None if at == inf else loop.call_at(at, self._end_trust)

    def _end_trust(self) -> None:
        self._set_trust_timer(self._held_leases.end_trust(asyncio.get_running_loop().time()))


class _RenewalInLoop:
    """Renewals in the event loop that drives the runs."""

    def __init__(self, new_renewal_loop: Callable[..., RenewalLoop]) -> None:
        self._new_renewal_loop = new_renewal_loop
        self._look_now = asyncio.Event()
        self._renewal_loop: RenewalLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, *, was_idle: bool) -> None:
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._look_now = asyncio.Event()
            self._renewal_loop = self._new_renewal_loop(loop.call_soon, self._look_now)
            self._task = loop.create_task(self._renewal_loop.go())

    def look_now(self) -> None:
        self._look_now.set()

    async def close(self) -> None:
        if self._task is not None and self._renewal_loop is not None:
            self._renewal_loop.end()
            await end(self._task)
