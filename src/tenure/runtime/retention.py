"""Removes runs that ended long ago, in small batches.

Other users of the store should not notice: each batch is followed by a pause, so that one process
removes at most ``per_second`` runs a second. Several processes may prune one store: they take
different runs, each with its own budget. The store decides what may be removed (never a run that
has not ended; see ``ports.store.Retention``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from tenure.aio import ENDLESS, end, pause
from tenure.model.query import MAX_PAGE, RunFilter
from tenure.model.status import TERMINAL_RUN, DeliveryState
from tenure.ports.callbacks import Outbox
from tenure.ports.store import Retention, RunStateStore, StoreClock
from tenure.runtime.options import PruneRate, RetentionPolicy

_log = logging.getLogger("tenure.runtime")


async def remove_old(
    store: Retention,
    older_than: float,
    rate: PruneRate,
    progress: Callable[[int], None],
    wait: Callable[[float], Awaitable[None]] = pause,
) -> int:
    """Remove all runs that ended ``older_than`` seconds ago; their number. ``progress`` is called
    with the number so far."""
    loop, count = asyncio.get_running_loop(), 0
    while True:
        began = loop.time()
        removed = await store.prune_runs(older_than, limit=rate.batch)
        if not removed:
            return count
        count += removed
        progress(count)
        await wait(max(rate.seconds_for(removed) - (loop.time() - began), 0.0))


class Removable(NamedTuple):
    """What ``remove_old`` would remove now."""

    runs: int
    ended_before: datetime
    oldest_end: datetime | None


async def count_removable(store: RunStateStore, older_than: float, now: datetime) -> Removable:
    """Reads every run that old; ``now`` is asked of the store, if it can tell."""
    if isinstance(store, StoreClock):
        now = await store.store_time()
    before = now - timedelta(seconds=older_than)
    calling = await _runs_with_callbacks_to_send(store)
    ends: list[datetime] = []
    where, cursor = RunFilter(statuses=TERMINAL_RUN, created_to=before), None
    while True:
        page = await store.list_runs(where, limit=MAX_PAGE, cursor=cursor)
        ends += (
            run.finished_at
            for run in page.items
            if run.finished_at is not None
            and run.finished_at < before
            and run.run_id not in calling
        )
        cursor = page.cursor
        if cursor is None:
            return Removable(len(ends), before, min(ends, default=None))


async def _runs_with_callbacks_to_send(store: RunStateStore) -> set[str]:
    found: set[str] = set()
    cursor = None
    while isinstance(store, Outbox):
        page = await store.list_deliveries(
            state=DeliveryState.WAITING, limit=MAX_PAGE, cursor=cursor
        )
        found |= {each.run_id for each in page.items}
        cursor = page.cursor
        if cursor is None:
            break
    return found


class _Next(NamedTuple):
    wait: float
    failures: int


class PruneLoop:
    """Prunes at intervals. Begins at once, so that short-lived commands take part too."""

    def __init__(
        self,
        store: Retention,
        policy: RetentionPolicy,
        wait: Callable[[float], Awaitable[None]] = pause,
    ) -> None:
        self._store = store
        self._policy = policy
        self._wait = wait
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop. The store removes each run of a batch under way completely or not at all."""
        if self._task is not None:
            await end(self._task)

    async def _run(self) -> None:
        next_ = _Next(0.0, 0)
        while True:
            began = asyncio.get_running_loop().time()
            next_ = await self._prune(next_.failures)
            took = asyncio.get_running_loop().time() - began
            await self._wait(max(next_.wait - took, 0.0))

    async def _prune(self, failures: int) -> _Next:
        try:
            removed = await self._store.prune_runs(self._policy.seconds, limit=self._policy.batch)
        except Exception as error:  # noqa: BLE001  whatever it is, it must be tried again
            if not failures:
                _log.warning(
                    "runs that ended long ago cannot be removed (%s); it is tried again",
                    str(error) or type(error).__name__,
                )
            return _Next(ENDLESS.wait_after(failures + 1, luck=0.0) or 0.0, failures + 1)
        if failures:
            _log.warning("runs that ended long ago can be removed again")
        return _Next(self._policy.wait_after(removed), 0)
