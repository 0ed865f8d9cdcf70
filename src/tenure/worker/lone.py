"""A run that waits alone is begun in the very commit that claims it.

That is how most runs meet an idle worker, and it spares them a commit and a trip. Where several
wait, or one that somebody has begun before, they are claimed: each worker then gets others.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.beginnings import Beginnings, Offering
from tenure.ports.lease_store import LeaseStore
from tenure.runtime.embedded import Work
from tenure.runtime.in_touch import InTouch
from tenure.worker.preparing import Preparing
from tenure.worker.shift import Shift


class Lone:
    def __init__(
        self,
        store: LeaseStore,
        queues: Sequence[str],
        preparing: Preparing,
        shift: Shift,
        touch: InTouch,
    ) -> None:
        self._store = store if isinstance(store, Beginnings) else None
        self._offering = store if isinstance(store, Offering) else None
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

    def at_hand(self) -> Work | None:
        """The run that waits, if it came with its hint and all else is known: nobody is asked, so
        that nobody needs to wait. ``None``: whoever looks will see."""
        if self._store is None or self._offering is None:
            return None
        try:
            found = self._offering.offered_run(self._queues)
            if found is None or found.snapshot.run_id in self._shift:
                return None
            work = self._preparing.at_hand(found) if self._can_begin(found.snapshot) else None
        except Exception:  # noqa: BLE001  (whoever claims it says what is wrong)
            return None
        return None if work is None else replace(work, waits=self._store)

    def _can_begin(self, run: RunSnapshot) -> bool:
        """Else it is claimed first, and what becomes of it then is decided."""
        waits = run.status is RunStatus.QUEUED and run.cancel_requested_at is None
        return waits and not run.takeovers and not self._shift.has_tried(run.run_id)
