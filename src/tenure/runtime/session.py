"""Everything one process shares for one store: group commit, leases, reconciling, operators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime

from msgspec import Struct

from tenure.cancelling import end, times_cancelled
from tenure.model.errors import StoreUnavailable, TenureError
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import MAX_LEASE_SECONDS
from tenure.model.wakeups import topic_of_owner
from tenure.ports.attended import Attended
from tenure.ports.last_records import LastRecords
from tenure.ports.lease_store import LeaseStore
from tenure.ports.liveness import Presence
from tenure.ports.log_store import LogStore
from tenure.ports.retention import Retention
from tenure.ports.run_store import RunStateStore
from tenure.ports.trust import TrustWindows
from tenure.ports.wakeups import Wakeups
from tenure.runtime.callbacks import Callbacks
from tenure.runtime.combiner import Combiner
from tenure.runtime.hinting import Hinting
from tenure.runtime.in_touch import Contact, InTouch
from tenure.runtime.keeper import Keeper
from tenure.runtime.lease_timing import Timing
from tenure.runtime.operators import Operators
from tenure.runtime.recovery import Reconciler, told_of
from tenure.runtime.retention import Forgetting, RetentionPolicy
from tenure.runtime.waiting import pause

_log = logging.getLogger("tenure.runtime")

LATER = "its lease ended without a renewal"


class Identity(Struct, frozen=True, kw_only=True):
    """Who this process is, and how it tells that another one is gone."""

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
        """``callbacks`` becomes ours to open and to close. ``windows`` ends tasks if we cannot."""
        self.store = store
        self.log_store = store if isinstance(store, LogStore) else None
        self.last_record = store.last_record if isinstance(store, LastRecords) else _none_at_hand
        self.identity = identity
        self.timing = timing
        self.callbacks = callbacks
        self.hinting = hinting
        told = callbacks.told if callbacks is not None else None
        self.contact = Contact(timing.renew_interval)
        self.writing = InTouch(self.contact)
        self.combiner = Combiner(store, self.writing)
        self.keeper = Keeper(store, identity.owner_id, timing, InTouch(self.contact), windows)
        self.operators = Operators(store, identity.new_id, told)
        self.reconciler = Reconciler(
            store,
            identity.owner_id,
            identity.new_id,
            identity.presence,
            identity.runner_id,
            told,
            InTouch(self.contact),
        )
        self._forgetting = _forgetting(store, retention)
        self._has_leases = isinstance(store, LeaseStore)
        self.lease_seconds = timing.lease_duration if self._has_leases else MAX_LEASE_SECONDS
        """One that cannot be renewed lasts until reconcile finds its owner gone."""
        self.attended = isinstance(store, Attended)
        """Somebody else marks what is abandoned, here and from now on."""
        self._interval = reconcile_interval
        self._reconciling: asyncio.Task[None] | None = None
        self._listening = AsyncExitStack()

    async def open(self) -> None:
        """Mark what a dead process left behind, then keep looking. Callbacks begin after that: a
        store that cannot be used is complained of once."""
        try:
            if not self.attended:
                await self.reconciler.mark_at_start()
        except BaseException:
            await self.close()
            raise
        if self.callbacks is not None:
            self.callbacks.open()
        if self._forgetting is not None:
            self._forgetting.open()
        if isinstance(self.store, Wakeups):
            topics = [topic_of_owner(self.identity.owner_id)]
            await self._listening.enter_async_context(
                self.store.listen(topics, self.keeper.look_now)
            )
        if self._has_leases and not self.attended:
            self._reconciling = asyncio.create_task(self._keep_reconciling())

    async def close(self) -> None:
        """All of it, also if one part fails or somebody no longer wants to wait."""
        cancelled_before = times_cancelled()

        async def close_callbacks() -> None:
            if self.callbacks is not None:
                await self.callbacks.close(at_once=times_cancelled() > cancelled_before)

        async with AsyncExitStack() as closing:
            closing.push_async_callback(close_callbacks)
            closing.push_async_callback(self.combiner.close)
            closing.push_async_callback(self.keeper.close)
            closing.push_async_callback(self._listening.aclose)
            if self._forgetting is not None:
                closing.push_async_callback(self._forgetting.close)
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
                    touch.lost()  # else it has answered, if only that it refuses
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


def _none_at_hand(run_id: str) -> RunSnapshot | None:
    return None


def _forgetting(store: RunStateStore, policy: RetentionPolicy | None) -> Forgetting | None:
    if policy is None or isinstance(store, Attended):
        return None
    if not isinstance(store, Retention):
        _log.warning("this store (%s) cannot remove runs: it keeps all", type(store).__name__)
        return None
    return Forgetting(store, policy)
