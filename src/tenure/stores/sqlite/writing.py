"""Creations and updates, one transaction for one or for many.

The model decides; here is the order of the work: take the write lock, read the clocks, load what
the update concerns, ``apply``, store what came out different. Runs in the writer's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import apsw

from tenure.model.apply import apply
from tenure.model.codec import storable
from tenure.model.errors import RunNotFound, StoreRejected, TenureError
from tenure.model.events import Event
from tenure.model.judge import Circumstances, choose_effect
from tenure.model.leasing import check_repeated, create
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import NewRun, Receipt, Update, Write, receipt, run_id_of
from tenure.stores.lease_clock import Instant, LeaseClock, LeaseEnd, shown
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.database import DATA_ERRORS, transaction
from tenure.stores.sqlite.loading import Loading
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Statements
from tenure.stores.sqlite.storing import Storing


class _Poisoned(Exception):
    """Write number ``index`` failed half-way; the whole transaction must be done again without."""

    def __init__(self, index: int, error: TenureError) -> None:
        super().__init__(index)
        self.index = index
        self.error = error


class Writing:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._connection = connection
        self._clock = clock
        self.sql = Statements(connection)
        self.loading = Loading(self.sql)
        self._storing = Storing(self.sql)

    @contextmanager
    def transaction(self) -> Iterator[Instant]:
        """The write lock, and the one instant at which all within is judged: while the lock is
        held nobody else can change what was true then."""
        with transaction(self._connection):
            yield self._clock.read()

    def one(self, write: Write) -> Receipt:
        try:
            with self.transaction() as instant:
                return self._write(write, instant)
        except DATA_ERRORS as error:
            raise _rejected(write, error) from error

    def many(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        """One commit for all that are accepted. A write whose values the database cannot hold is
        known only half-way through: the others are then done again without it."""
        poisoned: dict[int, TenureError] = {}
        while True:
            try:
                with self.transaction() as instant:
                    return self._all(writes, poisoned, instant)
            except _Poisoned as found:
                poisoned[found.index] = found.error

    def _all(
        self, writes: Sequence[Write], poisoned: dict[int, TenureError], instant: Instant
    ) -> list[Receipt | TenureError]:
        outcomes: list[Receipt | TenureError] = []
        seen: set[str] = set()
        for index, write in enumerate(writes):
            run_id = run_id_of(write)
            if index in poisoned:
                outcomes.append(poisoned[index])
            elif run_id in seen:
                outcomes.append(StoreRejected(run_id, "is written twice in one batch"))
            else:
                seen.add(run_id)
                outcomes.append(self._one_of_many(index, write, instant))
        return outcomes

    def _one_of_many(self, index: int, write: Write, instant: Instant) -> Receipt | TenureError:
        try:
            return self._write(write, instant)
        except TenureError as error:
            return error
        except DATA_ERRORS as error:
            raise _Poisoned(index, _rejected(write, error)) from error

    def _write(self, write: Write, instant: Instant) -> Receipt:
        write = storable(run_id_of(write), write)
        if isinstance(write, Update):
            return self._update(write, instant)
        return self._create(write, instant)

    def _create(self, new: NewRun, instant: Instant) -> Receipt:
        run_id = new.snapshot.run_id
        existing = self.loading.find(run_id)
        if existing is not None:
            check_repeated(existing.run, self.loading.update_id_of(existing.seq, 1), new)
            return receipt(existing.run, 1, shown(existing.lease_until))
        at = self._creation_time(instant)
        run = create(new, at)
        lease = new.lease
        claim_id, until = (lease.claim_id, instant.until(lease.seconds)) if lease else (None, None)
        seq = self._storing.insert_run(run, new.definition, claim_id, until, at)
        self._storing.journal(seq, run, new.update_id, new.events, new.deliveries, at)
        return receipt(run, 1, shown(until))

    def _creation_time(self, instant: Instant) -> datetime:
        """Never before the newest run's: lists by time and lists by number then agree."""
        newest = self.sql.first("newest_created_at")
        return max(instant.now, rows.moment(newest[0])) if newest else instant.now

    def _update(self, update: Update, instant: Instant) -> Receipt:
        head = self.loading.find(update.run_id)
        if head is None:
            raise RunNotFound(update.run_id)
        circumstances = self._circumstances(head, update, instant)
        effect = choose_effect(head.run, update, circumstances.lease_live)
        before = self.loading.for_effect(head, effect)
        after, version, written = apply(before, update, at=instant.now, circumstances=circumstances)
        if written is None:
            return receipt(head.run, version, shown(head.lease_until))
        until = head.lease_until if after.owner_id is not None else None
        self._storing.put_head(head, after, head.claim_id, until, instant.now)
        self._storing.put_steps(head.seq, before, after, effect)
        self._storing.journal(
            head.seq, after, update.update_id, effect.events, effect.deliveries, instant.now
        )
        return receipt(after, version, shown(until))

    def _circumstances(self, head: Head, update: Update, instant: Instant) -> Circumstances:
        base = update.base_version
        stale = base is not None and base < head.run.version
        return Circumstances(
            lease_live=head.run.owner_id is not None and instant.is_live(head.lease_until),
            applied_id=self.loading.update_id_of(head.seq, (base or 0) + 1) if stale else None,
            # Only an operator can be told "held until …".
            lease_expires_at=shown(head.lease_until) if update.lease is None else None,
        )

    def put_ownership(
        self,
        head: Head,
        run: RunSnapshot,
        event: Event | None,
        update_id: str,
        at: datetime,
        claim_id: str | None = None,
        until: LeaseEnd | None = None,
    ) -> None:
        """A claim or a release: a version of its own, with its event. Without one: a renewal."""
        self._storing.put_head(head, run, claim_id, until, at)
        if event is not None:
            self._storing.journal(head.seq, run, update_id, (event,), (), at)


def _rejected(write: Write, error: Exception) -> StoreRejected:
    return StoreRejected(run_id_of(write), f"cannot be stored: {error}")
