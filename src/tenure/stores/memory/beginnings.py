"""Runs that wait, and beginning one of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from tenure.model.codec import copied, storable
from tenure.model.leases import Beginning, WaitingRun, begin, why_not_runnable
from tenure.model.update import Receipt
from tenure.stores.memory.leases import by_priority
from tenure.stores.memory.state import MemoryState, StoredRun


class MemoryBeginnings:
    """``Beginnings``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def find_waiting(self, queues: Sequence[str], *, limit: int) -> list[WaitingRun]:
        with self._state.lock:
            found = sorted(filter(self._waits, self._state.unfinished.values()), key=by_priority)
            ours = (stored for stored in found if stored.snapshot.queue in queues)
            return [
                WaitingRun(
                    snapshot=copied(self._state.seen(stored)),
                    definition_digest=stored.definition_digest,
                )
                for stored in islice(ours, limit)
            ]

    def _waits(self, stored: StoredRun) -> bool:
        run = stored.snapshot
        return run.owner_id is None and why_not_runnable(run, self._state.clock.now()) is None

    async def begin_run(self, beginning: Beginning) -> Receipt:
        state = self._state
        with state.lock:
            stored = state.find(beginning.run_id)
            given = storable(beginning.run_id, beginning)
            applied = begin(
                stored.snapshot,
                given,
                at=state.clock.now(),
                applied_id=state.circumstances(stored, given.base_version).applied_id,
            )
            if applied.effect is not None:
                effect = applied.effect
                state.check_new(stored.snapshot.run_id, effect.deliveries)
                state.write(
                    stored, applied.snapshot, given.update_id, effect.events, effect.deliveries
                )
                stored.lease_until = state.clock.until(given.lease.seconds)
                stored.claim_id = given.lease.claim_id
            return state.receipt(stored, applied.version)
