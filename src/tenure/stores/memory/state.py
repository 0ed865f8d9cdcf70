"""What the memory store remembers. Everything here is touched under ``lock`` only."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from itertools import count

import msgspec

from tenure.model.decide import Circumstances, waits_for_approval
from tenure.model.errors import RunNotFound, StoreRejected
from tenure.model.leases import Lease, already_retried, present
from tenure.model.outbox import Delivery
from tenure.model.query import news
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Event, NewDelivery, Receipt, RecordedEvent, receipt, record
from tenure.ports.environment import Clock
from tenure.ports.store import LogKey
from tenure.stores.lease_clock import LeaseClock, LeaseEnd, shown


class JournalRow(msgspec.Struct, frozen=True):
    update_id: str
    events: tuple[RecordedEvent, ...]


class StoredRun:
    """One run and what surrounds its record. ``journal[v - 1]`` is the row of version ``v``."""

    def __init__(self, seq: int, snapshot: RunSnapshot, definition: str | None) -> None:
        self.seq = seq
        self.snapshot = snapshot
        self.definition = definition
        self.definition_digest = definition and sha256(definition.encode()).hexdigest()
        self.lease_until: LeaseEnd | None = None
        self.claim_id: str | None = None
        self.retry_root: str | None = None
        self.journal: list[JournalRow] = []
        self.changes: list[int] = []
        """The numbers of these rows among those of all runs."""
        self.output: dict[LogKey, bytearray] = {}

    def update_id_of(self, version: int) -> str | None:
        known = 1 <= version <= len(self.journal)
        return self.journal[version - 1].update_id if known else None


class MemoryState:
    def __init__(self, clock: Clock) -> None:
        self.lock = threading.RLock()
        self.clock = LeaseClock(clock)
        self.runs: dict[str, StoredRun] = {}
        self.unfinished: dict[str, StoredRun] = {}
        self.statuses: Counter[RunStatus] = Counter()
        """Of all runs: nobody walks through those that have ended to count them."""
        self.numbers = count(1)
        """Of runs and deliveries: order and cursor of lists, never given twice."""
        self.deliveries: dict[str, Delivery] = {}
        self.waiting: dict[str, None] = {}
        """Ids of deliveries not settled: all that a relay must look at."""
        self.delivery_numbers: dict[str, int] = {}
        self.delivery_rests: dict[str, LeaseEnd] = {}
        """Until when nobody may take one: its relay is at work, or its next attempt is not due."""

        self.changes: dict[int, JournalRow] = {}
        """All journals, by the order in which they were written."""
        self.newest_change = 0
        self.listeners: list[Callable[[frozenset[str]], None]] = []

    def find(self, run_id: str) -> StoredRun:
        stored = self.runs.get(run_id)
        if stored is None:
            raise RunNotFound(run_id)
        return stored

    def is_live(self, stored: StoredRun) -> bool:
        return stored.snapshot.owner_id is not None and self.clock.is_live(stored.lease_until)

    def circumstances(self, stored: StoredRun, base_version: int | None) -> Circumstances:
        applied_id = None
        if base_version is not None and base_version < stored.snapshot.version:
            applied_id = stored.update_id_of(base_version + 1)
        return Circumstances(
            lease_live=self.is_live(stored),
            applied_id=applied_id,
            lease_expires_at=shown(stored.lease_until),
        )

    def retry_root(self, retry_of: str | None) -> str | None:
        """``NotRunnable`` if a retry of that chain is active."""
        if retry_of is None:
            return None
        old = self.runs.get(retry_of)
        root = (old and old.retry_root) or retry_of
        for stored in self.unfinished.values():
            if stored.retry_root == root:
                run = stored.snapshot
                raise already_retried(retry_of, run.run_id, run.status, waits_for_approval(run))
        return root

    def check_new(self, run_id: str, deliveries: tuple[NewDelivery, ...]) -> None:
        for delivery in deliveries:
            if delivery.id in self.deliveries:
                raise StoreRejected(run_id, f"delivery id {delivery.id} is taken")

    def write(
        self,
        stored: StoredRun,
        snapshot: RunSnapshot,
        update_id: str,
        events: tuple[Event, ...],
        deliveries: tuple[NewDelivery, ...] = (),
    ) -> None:
        """State, journal row and deliveries of one version, together."""
        before = stored.snapshot if stored.journal else None
        if self.listeners:
            self._tell(frozenset(news(before, snapshot, self.clock.now())))
        if before is not None:
            self.statuses[before.status] -= 1
        self.statuses[snapshot.status] += 1
        stored.snapshot = snapshot
        if snapshot.owner_id is None:
            stored.lease_until = stored.claim_id = None
        if snapshot.ended:
            self.unfinished.pop(snapshot.run_id, None)
        at = snapshot.updated_at or self.clock.now()
        recorded = tuple(
            record(
                event,
                run_id=snapshot.run_id,
                version=snapshot.version,
                seq=seq,
                at=at,
                fence=snapshot.fence,
            )
            for seq, event in enumerate(events)
        )
        row = JournalRow(update_id, recorded)
        stored.journal.append(row)
        self.newest_change += 1
        stored.changes.append(self.newest_change)
        self.changes[self.newest_change] = row
        self._enqueue(snapshot, recorded, deliveries)

    def _tell(self, topics: frozenset[str]) -> None:
        for hear in self.listeners:
            hear(topics)

    def _enqueue(
        self,
        snapshot: RunSnapshot,
        recorded: tuple[RecordedEvent, ...],
        deliveries: tuple[NewDelivery, ...],
    ) -> None:
        """Due at once by the clock: ``updated_at`` may be ahead of a clock that was set back."""
        due_at = self.clock.now()
        targets = {target.name: target for target in snapshot.callbacks}
        for new in deliveries:
            self.delivery_numbers[new.id] = next(self.numbers)
            self.waiting[new.id] = None
            self.deliveries[new.id] = Delivery(
                id=new.id,
                run_id=snapshot.run_id,
                workflow_name=snapshot.workflow_name,
                target=targets[new.target],
                event=recorded[new.seq],
                run_status=snapshot.status,
                due_at=due_at,
            )

    def drop_delivery(self, delivery_id: str) -> None:
        del self.deliveries[delivery_id], self.delivery_numbers[delivery_id]
        self.delivery_rests.pop(delivery_id, None)
        self.waiting.pop(delivery_id, None)

    def seen(self, stored: StoredRun) -> RunSnapshot:
        """The record as it reads now; still the store's own memory: ``copied`` before it leaves."""
        return present(
            stored.snapshot,
            lease_live=self.is_live(stored),
            expires_at=shown(stored.lease_until),
        )

    def receipt(self, stored: StoredRun, version: int) -> Receipt:
        return receipt(stored.snapshot, version, shown(stored.lease_until))

    def lease(self, stored: StoredRun) -> Lease:
        run = stored.snapshot
        return Lease(
            run_id=run.run_id,
            owner_id=run.owner_id or "",
            fence=run.fence,
            expires_at=shown(stored.lease_until) or self.clock.now(),
        )
