"""What one process shares for one store (``Session``): group commit, leases, reconciling,
operators, callbacks, hints to workers; and the sessions of all its stores (``Sessions``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime

from msgspec import Struct

from tenure.aio import end, pause, times_cancelled
from tenure.model.errors import RunnerClosed, StoreUnavailable, TenureError
from tenure.model.query import topic_of_owner
from tenure.model.update import MAX_LEASE_SECONDS
from tenure.ports.environment import Broker
from tenure.ports.execution import TrustWindows
from tenure.ports.leases import LeaseStore, Presence, Wakeups
from tenure.ports.store import Attended, LogStore, Retention, RunStateStore
from tenure.runtime.callbacks import Callbacks
from tenure.runtime.group_commit import GroupCommit, InTouch, StoreContact
from tenure.runtime.leases import LeaseRenewer
from tenure.runtime.operators import Operators
from tenure.runtime.options import RetentionPolicy, Timing
from tenure.runtime.reconciler import Reconciler, told_of
from tenure.runtime.retention import PruneLoop

_HINT_TIMEOUT_S = 2.0
"""A hint delays its sender for no longer."""
_HINT_PAUSE_S = 5.0
"""After a failed hint none is sent for this time, so that no sender is delayed again."""


class Hinting:
    """Hints that a run can be claimed, through a broker. Best effort: workers also poll."""

    def __init__(self, broker: Callable[[], Awaitable[Broker | None]], name: str) -> None:
        """``broker`` opens the broker if needed; ``name``: for messages, without a password."""
        self._broker = broker
        self._name = name
        self._paused_until = 0.0
        self._failing = False

    async def hint(self, queue: str, run_id: str) -> None:
        """Call it once the run can be claimed in the store. Raises nothing."""
        time = asyncio.get_running_loop().time
        if time() < self._paused_until:
            return
        limit = asyncio.timeout(_HINT_TIMEOUT_S)
        try:
            async with limit:
                broker = await self._broker()
                if broker is not None:
                    await broker.publish(queue, run_id)
        except Exception as error:  # noqa: BLE001  an integrator's broker may raise anything
            self._paused_until = time() + _HINT_PAUSE_S
            if not self._failing:
                self._failing = True
                message = str(error) or type(error).__name__
                if limit.expired():
                    message = f"the broker {self._name} did not answer for {_HINT_TIMEOUT_S:g} s"
                _log.warning(
                    "workers are not told of new runs and find them by looking: %s", message
                )
        else:
            self._failing = False


_log = logging.getLogger("tenure.runtime")

LATER = "its lease ended without a renewal"


class Identity(Struct, frozen=True, kw_only=True):
    """The identity of this process, and how it detects that another one is gone."""

    owner_id: str
    new_id: Callable[[], str]
    presence: Callable[[str], Presence]
    now: Callable[[], datetime]
    runner_id: str | None = None


class Session:
    def __init__(
        self,
        store: RunStateStore,
        identity: Identity,
        timing: Timing,
        reconcile_interval: float = 5.0,
        callbacks: Callbacks | None = None,
        windows: TrustWindows | None = None,
        retention: RetentionPolicy | None = None,
        hinting: Hinting | None = None,
    ) -> None:
        """``callbacks`` is opened and closed by the session. ``windows`` ends tasks when this
        process cannot."""
        self.store = store
        self.log_store = store if isinstance(store, LogStore) else None
        self.identity = identity
        self.timing = timing
        self.callbacks = callbacks
        self.hinting = hinting
        on_committed = callbacks.told if callbacks is not None else None
        self.contact = StoreContact(timing.renew_interval)
        self.writing = InTouch(self.contact)
        self.combiner = GroupCommit(store, self.writing)
        self.keeper = LeaseRenewer(store, identity.owner_id, timing, InTouch(self.contact), windows)
        self.operators = Operators(store, identity.new_id, on_committed)
        self.reconciler = Reconciler(
            store,
            identity.owner_id,
            identity.new_id,
            identity.presence,
            identity.runner_id,
            on_committed,
            InTouch(self.contact),
        )
        self._prune_loop = _prune_loop(store, retention)
        self._has_leases = isinstance(store, LeaseStore)
        self.lease_seconds = timing.lease_duration if self._has_leases else MAX_LEASE_SECONDS
        """Without leases a claim lasts until reconcile finds its owner gone."""
        self.attended = isinstance(store, Attended)
        """The process behind the store marks abandoned runs and prunes; this one does not."""
        self._interval = reconcile_interval
        self._reconciling: asyncio.Task[None] | None = None
        self._listening = AsyncExitStack()

    async def open(self) -> None:
        """Mark runs abandoned by dead processes, now and at intervals. Callbacks start after that,
        so that an unusable store is reported once."""
        try:
            if not self.attended:
                await self.reconciler.mark_at_start()
        except BaseException:
            await self.close()
            raise
        if self.callbacks is not None:
            self.callbacks.open()
        if self._prune_loop is not None:
            self._prune_loop.open()
        if isinstance(self.store, Wakeups):
            topics = [topic_of_owner(self.identity.owner_id)]
            await self._listening.enter_async_context(
                self.store.listen(topics, self.keeper.look_now)
            )
        if self._has_leases and not self.attended:
            self._reconciling = asyncio.create_task(self._keep_reconciling())

    async def close(self) -> None:
        """Close every part, also if one fails or the caller is cancelled."""
        cancelled_before = times_cancelled()

        async def close_callbacks() -> None:
            if self.callbacks is not None:
                await self.callbacks.close(at_once=times_cancelled() > cancelled_before)

        async with AsyncExitStack() as closing:
            closing.push_async_callback(close_callbacks)
            closing.push_async_callback(self.combiner.close)
            closing.push_async_callback(self.keeper.close)
            closing.push_async_callback(self._listening.aclose)
            if self._prune_loop is not None:
                closing.push_async_callback(self._prune_loop.close)
            if self._reconciling is not None:
                await end(self._reconciling)

    async def _keep_reconciling(self) -> None:
        loop, touch = asyncio.get_running_loop(), InTouch(self.contact)
        complained = False
        while True:
            touch.rests(loop.time() + self._interval)
            await pause(self._interval)
            try:
                ended = await self.reconciler.reconcile(LATER, expired=lambda: touch.long_enough)
            except Exception as error:  # noqa: BLE001  whatever it is, it must be tried again
                if isinstance(error, StoreUnavailable) or not isinstance(error, TenureError):
                    touch.lost()  # else the store has answered, with a refusal
                if not complained:
                    why = str(error) or type(error).__name__
                    _log.warning("cannot look for abandoned runs (%s); it is tried again", why)
                complained = True
            else:
                if complained:
                    _log.warning("abandoned runs are looked for again")
                complained = False
                for line in told_of(ended, "owner"):
                    _log.info(line)


def _prune_loop(store: RunStateStore, policy: RetentionPolicy | None) -> PruneLoop | None:
    if policy is None or isinstance(store, Attended):
        return None
    if not isinstance(store, Retention):
        _log.warning("this store (%s) cannot remove runs: it keeps all", type(store).__name__)
        return None
    return PruneLoop(store, policy)


class Sessions:
    """The sessions of one process, one for each store, opened once under concurrent calls.

    ``open_main`` opens the default store. After ``refuse`` no session is opened: it would never be
    closed.
    """

    def __init__(
        self,
        open_main: Callable[[], Awaitable[RunStateStore]],
        new_session: Callable[[RunStateStore], Session],
    ) -> None:
        self._open_main = open_main
        self._new_session = new_session
        self._main: RunStateStore | None = None
        self._open: dict[int, Session] = {}
        self._opening = asyncio.Lock()
        self._refusing = False

    async def of(self, store: RunStateStore | None = None) -> Session:
        """``RunnerClosed``. Without ``store``, the main one's."""
        self.check_open()
        session = self._open.get(id(self._main if store is None else store))
        if session is None:
            async with self._opening:
                self.check_open()
                session = await self._opened(await self._main_store() if store is None else store)
            self.check_open()  # ``refuse`` has waited for this, and it is closed now
        return session

    async def _main_store(self) -> RunStateStore:
        if self._main is None:
            self._main = await self._open_main()
        return self._main

    async def _opened(self, store: RunStateStore) -> Session:
        session = self._open.get(id(store))
        if session is None:
            session = self._new_session(store)
            await session.open()
            self._open[id(store)] = session
        return session

    def check_open(self) -> None:
        """``RunnerClosed``."""
        if self._refusing:
            raise RunnerClosed

    def welcome(self) -> None:
        """Take back ``refuse``."""
        self._refusing = False

    async def refuse(self) -> None:
        """Open no more sessions; returns when none is being opened."""
        self._refusing = True
        async with self._opening:
            pass

    async def close(self) -> None:
        """Close all sessions, also if one fails. The stores stay open."""
        sessions, self._open, self._main = self._open, {}, None
        self._opening = asyncio.Lock()  # the next caller may live in another event loop
        async with AsyncExitStack() as closing:
            for session in sessions.values():
                closing.push_async_callback(session.close)
