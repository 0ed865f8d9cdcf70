"""Saying yes to a run that asks for it, and ending one to which nobody did in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from tenure.model import compose
from tenure.model.approving import is_overdue
from tenure.model.errors import InvalidTransition, VersionConflict
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.ports.run_store import RunStateStore
from tenure.runtime.callbacks import Told
from tenure.runtime.patience import surely
from tenure.system import SystemClock


class Approvals:
    """The store judges by its own clock; ours (``now``) only keeps us from asking all the time."""

    def __init__(
        self,
        store: RunStateStore,
        new_id: Callable[[], str],
        told: Told | None = None,
        now: Callable[[], datetime] = SystemClock().now,
    ) -> None:
        self._store = store
        self._new_id = new_id
        self._told = told
        self._now = now
        self._ids: Iterator[str] = iter(new_id, "")

    async def approve(self, run_id: str, by: str, note: str | None = None) -> None:
        """``RunNotFound``; ``InvalidTransition`` for a run that ended, does not ask, or waited for
        too long: that one is ended as well."""
        yes = compose.approve(run_id, self._new_id(), by, note)
        try:
            await surely(lambda: self._store.update_run(yes))
        except InvalidTransition as error:
            run = await surely(lambda: self._store.get_run(run_id))
            if run.approval.expires_at is not None:
                await self._expire(run)
            if run.ended and run.message is not None:
                why = f"ended as {run.status} ({run.message}); only annotations may follow"
                raise InvalidTransition(run_id, why) from error
            raise

    async def expire_if_overdue(self, run: RunSummary) -> bool:
        """Whether that ended it."""
        if not is_overdue(run, self._now()):
            return False
        return await self._expire(await surely(lambda: self._store.get_run(run.run_id)))

    async def _expire(self, run: RunSnapshot) -> bool:
        update = compose.expire(run, self._new_id(), self._ids)
        try:
            receipt = await surely(lambda: self._store.update_run(update))
        except (InvalidTransition, VersionConflict):
            return False  # approved, annotated, ended, or by the store's clock still in time
        if run.ended:
            return False
        if self._told is not None:
            self._told(run, update.effect.events, update.effect.deliveries, receipt)
        return True
