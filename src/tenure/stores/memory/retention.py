"""Forgetting old runs."""

from __future__ import annotations

from datetime import timedelta

from tenure.model.query import check_age
from tenure.model.status import DeliveryState
from tenure.stores.memory.state import MemoryState


class MemoryRetention:
    """``Retention``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        check_age(older_than)
        with self._state.lock:
            ended_before = self._state.clock.now() - timedelta(seconds=older_than)
            ended = sorted(
                (finished_at, stored.seq, stored)
                for stored in self._state.runs.values()
                if (finished_at := stored.snapshot.finished_at) is not None
                and finished_at < ended_before
            )
            calling = {
                delivery.run_id
                for delivery in self._state.deliveries.values()
                if delivery.state is DeliveryState.WAITING
            }
            free = [stored for *_, stored in ended if stored.snapshot.run_id not in calling]
            pruned = {stored.snapshot.run_id for stored in free[: max(limit, 0)]}
            self._forget(pruned)
            return len(pruned)

    def _forget(self, pruned: set[str]) -> None:
        """Journal, definition and output go with their run."""
        for run_id in pruned:
            stored = self._state.runs.pop(run_id)
            self._state.statuses[stored.snapshot.status] -= 1
            for number in stored.changes:
                del self._state.changes[number]
        for delivery in list(self._state.deliveries.values()):
            if delivery.run_id in pruned:
                self._state.drop_delivery(delivery.id)
