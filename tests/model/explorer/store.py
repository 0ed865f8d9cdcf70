"""A store as the protocol sees it: one record judged by the model, a journal, a lease flag.

``handle`` is a pure function of store and message, so its answers are remembered: the search
meets the same few thousand pairs again and again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tenure.model.decide import Circumstances, apply
from tenure.model.errors import (
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    VersionConflict,
)
from tenure.model.leases import Purpose, check_repeated, claim, create, holds, release
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Fencing
from tests.model.explorer.messages import Answer, Heard, Message, Verb, new_run, update_of, view_of
from tests.model.explorer.rules import Bounds, Rules

AT = datetime(2030, 1, 1, tzinfo=UTC)
RECONCILER = "reconciler"


class Record:
    """An interned snapshot: the same content is the same object, hence cheap to compare."""

    __slots__ = ("snapshot",)

    def __init__(self, snapshot: RunSnapshot) -> None:
        self.snapshot = snapshot


_records: dict[bytes, Record] = {}
_encoder = msgspec.msgpack.Encoder(order="deterministic")


def interned(snapshot: RunSnapshot) -> Record:
    return _records.setdefault(_encoder.encode(snapshot), Record(snapshot))


class Store(NamedTuple):
    record: Record | None = None
    journal: tuple[str, ...] = ()
    """``journal[v - 1]`` is the ``update_id`` of version ``v``."""
    live: bool = False
    """There is an owner, and its lease has not expired."""
    claim_id: str | None = None
    begun: tuple[str, Record] | None = None
    """Only without ``claim_then_read``: whose claim statement began, and what it saw."""
    shown: Record | None = None
    """Only without ``claim_then_read``: the rows the present owner was shown."""

    @property
    def run(self) -> RunSnapshot | None:
        return self.record.snapshot if self.record else None

    def held_under(self, message: Message) -> bool:
        run = self.run
        return run is not None and self.claim_id == message.id and run.owner_id == message.sender


class Handled(NamedTuple):
    store: Store
    answer: Answer

    def wrote(self, before: Store) -> bool:
        return self.store.record is not before.record


class Desk:
    """Handles messages under given rules."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self._rules = rules
        self._bounds = bounds
        self._known: dict[tuple[Store, Message], Handled] = {}

    def handle(self, store: Store, message: Message) -> Handled:
        key = (store, message)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._handle(store, message)
        return known

    def _handle(self, store: Store, message: Message) -> Handled:
        if message.verb is Verb.CREATE:
            return self._create(store, message)
        run = store.run
        assert run is not None, "nobody writes before the run exists"
        try:
            if message.verb is Verb.CLAIM:
                return self._claim(store, run, message)
            if message.verb is Verb.RELEASE:
                return self._release(store, run, message)
            return self._update(store, run, message)
        except LeaseLost as lost:
            return Handled(store, Answer(Heard.LOST, run.version, lost.fence))
        except LeaseHeld:
            return Handled(store, Answer(Heard.HELD))
        except VersionConflict as stale:
            cancel = stale.cancel_requested_at is not None
            return Handled(store, Answer(Heard.CONFLICT, stale.version, stale.fence, cancel))
        except InvalidTransition:
            return Handled(store, Answer(Heard.INVALID))

    def _create(self, store: Store, message: Message) -> Handled:
        new = new_run(message, self._bounds.recovery, self._bounds.tasks)
        if store.record is None:
            born = create(new, AT)
            claim_id = message.id if new.lease else None
            store = Store(interned(born), (message.id,), new.lease is not None, claim_id)
        run = store.run
        assert run is not None
        if self._rules.create_checks_owner:
            try:
                check_repeated(run, store.journal[0], new)
            except LeaseLost:
                return Handled(store, Answer(Heard.LOST, run.version, run.fence))
        return Handled(store, Answer(Heard.OK, 1, run.fence, view=view_of(run)))

    def _update(self, store: Store, run: RunSnapshot, message: Message) -> Handled:
        update = update_of(message, self._bounds.tasks)
        base = update.base_version
        stale = base is not None and base < run.version
        applied = apply(
            _with_rows(run, store.shown),
            update,
            at=AT,
            circumstances=Circumstances(
                lease_live=store.live, applied_id=store.journal[base or 0] if stale else None
            ),
            checks=self._rules.checks,
        )
        after, version = applied.snapshot, applied.version
        if applied.effect is not None:
            if update.lease is None and not self._rules.outside_end_raises_fence:
                after = replace(after, fence=run.fence)
            store = _written(store, after, message.id)
        elif run.ended and base is None and not self._rules.noop_writes_nothing:
            after, version = replace(run, version=run.version + 1), run.version + 1
            store = _written(store, after, message.id)
        cancel = after.cancel_requested_at is not None
        return Handled(store, Answer(Heard.OK, version, after.fence, cancel))

    def _claim(self, store: Store, run: RunSnapshot, message: Message) -> Handled:
        """As ``claim_runs``: a run this owner already holds is not among those to be had."""
        if not (self._rules.claim_memory and store.held_under(message)):
            if store.live or (message.wary and run.owner_id is not None):
                return Handled(store, Answer(Heard.NOTHING))
            purpose = Purpose.RECONCILE if message.sender == RECONCILER else Purpose.EXECUTE
            try:
                taken = claim(run, message.sender, at=AT, lease_live=False, purpose=purpose)
            except NotRunnable:
                return Handled(store, Answer(Heard.NOTHING))
            begun = store.begun
            store = _written(store, taken.snapshot, message.id)
            store = store._replace(live=True, claim_id=message.id, begun=None, shown=None)
            if begun is not None and begun[0] == message.sender:
                store = store._replace(shown=begun[1])
        held = store.run
        assert held is not None
        view = view_of(_with_rows(held, store.shown))
        return Handled(store, Answer(Heard.OK, held.version, held.fence, view.cancel, view))

    def _release(self, store: Store, run: RunSnapshot, message: Message) -> Handled:
        given_back = release(run, message.fencing, AT)
        if given_back.event is not None:
            store = _written(store, given_back.snapshot, message.id)
        return Handled(store, Answer(Heard.OK, given_back.snapshot.version, run.fence))

    def renew(self, store: Store, fencing: Fencing) -> Handled:
        run = store.run
        assert run is not None
        if not holds(run, fencing):
            return Handled(store, Answer(Heard.LOST))
        cancel = run.cancel_requested_at is not None
        return Handled(store._replace(live=True), Answer(Heard.OK, run.version, run.fence, cancel))


def _written(store: Store, run: RunSnapshot, update_id: str) -> Store:
    owned = run.owner_id is not None
    return store._replace(
        record=interned(run),
        journal=(*store.journal, update_id),
        live=store.live and owned,
        claim_id=store.claim_id if owned else None,
        shown=None,
    )


def _with_rows(run: RunSnapshot, shown: Record | None) -> RunSnapshot:
    if shown is None:
        return run
    return replace(run, steps=shown.snapshot.steps, counts=shown.snapshot.counts)
