"""How much there is, and how much of it is to be done."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from tenure.model.leases import why_not_runnable
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import DeliveryState, RunStatus
from tenure.ports.store import Census, QueueLength
from tenure.stores.memory.state import MemoryState


class MemoryCensus:
    """``CensusTaking`` and ``StoreClock``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def store_time(self) -> datetime:
        return self._state.clock.now()

    async def take_census(self, *, most: int = 10_000) -> Census:
        with self._state.lock:
            now = self._state.clock.now()
            runs = [stored.snapshot for stored in self._state.unfinished.values()]
            by_status = {status: self._state.statuses[status] for status in RunStatus}
            states = [each.state for each in self._state.deliveries.values()]
        return Census(
            runs={status: min(number, most) for status, number in by_status.items()},
            callbacks_waiting=min(states.count(DeliveryState.WAITING), most),
            callbacks_dead=min(states.count(DeliveryState.DEAD), most),
            queues=_lengths(runs, now, most),
        )


def _lengths(runs: list[RunSnapshot], now: datetime, most: int) -> tuple[QueueLength, ...]:
    waiting: dict[str, list[datetime]] = defaultdict(list)
    for run in runs:
        if run.owner_id is None and why_not_runnable(run, now) is None:
            waiting[run.queue].append(run.run_after or run.created_at or now)
    return tuple(
        QueueLength(
            queue=queue,
            runs=min(len(ready), most),
            oldest_seconds=max((now - min(ready)).total_seconds(), 0.0),
        )
        for queue, ready in sorted(waiting.items())[:most]
    )
