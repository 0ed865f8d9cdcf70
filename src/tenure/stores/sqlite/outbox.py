"""Callbacks: claimed and settled in batches, each one transaction of the writer's thread.

Claimed deliveries are cached, because settling needs them unchanged: the statement that settles
checks the token, and if a row no longer has it, all are read again. Rows are passed as one JSON
text, because a statement for each would cost more than the rest. Errors are raised before anything
is written, so no savepoint is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.model.codec import decode, storable
from tenure.model.errors import DeliveryNotFound, TenureError
from tenure.model.outbox import (
    Delivered,
    Delivery,
    RetryLater,
    Settlement,
    as_callback_error,
    requeue,
    settle,
)
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import RecordedEvent
from tenure.ports.callbacks import DeliveryClaim
from tenure.stores import rows as record_rows
from tenure.stores.lease_clock import Instant, LeaseClock, LeaseEnd
from tenure.stores.rows import Kept, target_of
from tenure.stores.run_cache import Recent
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.connection import transaction
from tenure.stores.sqlite.rows import DELIVERY, DELIVERY_TABLES, Head, Statements


class _Row(Struct, array_like=True, gc=False):
    """``rows.DELIVERY``."""

    id: str
    run_id: str
    workflow_name: str
    callbacks: list[CallbackTarget]
    target: str
    event: RecordedEvent
    run_status: RunStatus
    state: DeliveryState
    attempts: int
    due_at: int
    settled_at: int | None
    died_at: int | None
    last_error: str | None
    redelivery: int
    token: str | None
    settled_token: str | None
    seq: int
    number: int


_many = msgspec.json.Decoder(list[_Row])
_one = msgspec.json.Decoder(_Row)


def deliveries_of(text: str) -> list[Kept]:
    return [_kept(row) for row in decode(_many, text)]


def delivery_of(text: str) -> Kept:
    return _kept(decode(_one, text))


def _kept(row: _Row) -> Kept:
    delivery = Delivery(
        id=row.id,
        run_id=row.run_id,
        workflow_name=row.workflow_name,
        target=target_of(row.callbacks, row.target, row.id),
        event=row.event,
        run_status=row.run_status,
        state=row.state,
        attempts=row.attempts,
        due_at=rows.moment(row.due_at),
        settled_at=rows.moment_or_none(row.settled_at),
        last_error=row.last_error,
        died_at=rows.moment_or_none(row.died_at),
        redelivery=bool(row.redelivery),
        token=row.token,
        settled_token=row.settled_token,
    )
    return Kept(delivery, row.seq, row.number)


def columns_of(before: Kept, delivery: Delivery, rest: LeaseEnd | None = None) -> tuple[Any, ...]:
    """For ``put_deliveries``. ``rest``: until when it may not be claimed."""
    boot_id, nanoseconds, _ = rows.lease_columns(rest)
    return (
        before.number,
        before.delivery.token,
        delivery.state,
        delivery.attempts,
        rows.micros(delivery.due_at),
        rows.micros_or_none(delivery.settled_at),
        rows.micros_or_none(delivery.died_at),
        delivery.redelivery,
        delivery.token,
        delivery.settled_token,
        delivery.last_error,
        boot_id,
        nanoseconds,
    )


_MAX_CACHED = 2000


class ClaimedDeliveries:
    """A cache of at most ``_MAX_CACHED`` claimed deliveries; evicts the oldest."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def remember(self, claimed: Iterable[Kept]) -> None:
        for kept in claimed:
            self._kept[kept.delivery.id] = kept
        while len(self._kept) > _MAX_CACHED:
            del self._kept[next(iter(self._kept))]

    def take(self, settlements: Iterable[Settlement]) -> dict[str, Kept]:
        """Remove and return those in the cache, by id."""
        taken: dict[str, Kept] = {}
        for settlement in settlements:
            kept = self._kept.pop(settlement.delivery_id, None)
            if kept is not None and kept.delivery.token == settlement.token:
                taken[settlement.delivery_id] = kept
        return taken


T = TypeVar("T")

_Found = dict[str, Kept]
"""By id."""


class _CacheOutdated(Exception):
    """A cached row was claimed by another relay, or is gone."""


class _Written(NamedTuple):
    """The changes of a transaction."""

    rows: dict[int, tuple[Any, ...]]
    """By number: one that is settled twice is written once."""
    settled: set[tuple[int, str]]
    """Runs and targets whose next callback may be sent."""
    failing: set[int]
    """Runs whose newest dead letter may have changed."""


_ORIGINS_AT_ONCE = 500
_RESTS_AT_ONCE = 1000
"""More than a relay can claim; few, because other writers wait."""
_names = msgspec.json.Decoder(list[str])


class Outbox:
    def __init__(
        self, connection: apsw.Connection, clock: LeaseClock, recent: Recent[Head] | None = None
    ) -> None:
        """``recent``: the writer's cache, to be invalidated."""
        self._recent = Recent() if recent is None else recent
        self._connection = connection
        self._sql = Statements(connection)
        self._clock = clock
        self._claimed = ClaimedDeliveries()
        self._next_origin = ""

    def claim(self, claim: DeliveryClaim) -> list[Delivery]:
        with transaction(self._connection):
            return self._claim(claim, self._clock.read())

    def _claim(self, claim: DeliveryClaim, instant: Instant) -> list[Delivery]:
        until = instant.until(claim.seconds)
        self._sql.do("end_rests", *instant.boot, _RESTS_AT_ONCE)
        if not self._sql.count("renew_held_deliveries", *until[:2], claim.token):
            limits, hold = (claim.most_per_origin, claim.most), (claim.token, *until[:2])
            if claim.only is not None:
                names = record_rows.text(list(claim.only))
                excluded = record_rows.text(list(claim.except_origins))
                self._sql.do("hold_named_deliveries", *hold, names, *limits, excluded)
            else:
                origins = self._origins(claim.except_origins)
                if not origins:
                    return []
                self._sql.do("hold_due_deliveries", *hold, record_rows.text(origins), *limits)
        (text,) = self._sql.one("held_deliveries", claim.token)
        held = deliveries_of(text)
        self._claimed.remember(held)
        return [kept.delivery for kept in held]

    def _origins(self, except_origins: Collection[str]) -> list[str]:
        """Origins with a delivery due, except these, which may fill any number of pages."""
        left_out = frozenset(except_origins)
        for _ in range(1 + len(left_out) // (_ORIGINS_AT_ONCE - 1)):
            wanted = [origin for origin in self._some_origins() if origin not in left_out]
            if wanted:
                return wanted
        return []

    def _some_origins(self) -> list[str]:
        """Origins with a delivery due: all, or the next page of very many, because every writer of
        the database waits meanwhile."""
        found = self._origins_from(self._next_origin)
        if self._next_origin and len(found) < _ORIGINS_AT_ONCE:
            found = list(dict.fromkeys([*found, *self._origins_from("")]))[:_ORIGINS_AT_ONCE]
        self._next_origin = found[-1] if len(found) == _ORIGINS_AT_ONCE else ""
        return found

    def _origins_from(self, first: str) -> list[str]:
        (text,) = self._sql.one("origins_due", first, _ORIGINS_AT_ONCE)
        return decode(_names, text)

    def requeue(self, delivery_id: str) -> Delivery:
        with transaction(self._connection):
            kept = self._find(delivery_id)
            again = requeue(kept.delivery, self._clock.now())
            if again is not kept.delivery:
                self._sql.do("put_deliveries", record_rows.text([columns_of(kept, again)]))
                self._sql.do("block_all_but_head", kept.seq, again.target.name)
            return again

    def get(self, delivery_id: str) -> Delivery:
        return self._find(delivery_id).delivery

    def page(
        self, state: DeliveryState | None, run_id: str | None, before: int, limit: int
    ) -> list[tuple[int, Delivery]]:
        conditions = "d.number < ?"
        values: list[Any] = [before]
        if run_id is not None:
            row = self._sql.first("seq_of_run", run_id)
            if row is None:
                return []
            conditions += " and d.seq = ?"
            values.append(row[0])
        if state is not None:
            conditions += " and d.state = ?"
            values.append(state.value)
        ((found,),) = self._sql.built(
            f"select json_group_array({DELIVERY} order by d.number desc) from {DELIVERY_TABLES} "
            f"where d.number in (select d.number from deliveries d where {conditions} "
            "order by d.number desc limit ?)",
            (*values, limit),
        )
        return [(kept.number, kept.delivery) for kept in deliveries_of(found)]

    def _find(self, delivery_id: str) -> Kept:
        (found,) = self._sql.one("deliveries_by_id", json.dumps([delivery_id]))
        for kept in deliveries_of(found):
            return kept
        raise DeliveryNotFound(delivery_id)

    def settle_one(self, settlement: Settlement) -> Delivery:
        (answer,) = self.settle([settlement])
        if isinstance(answer, TenureError):
            raise answer
        return answer

    def settle(self, settlements: Sequence[Settlement]) -> list[Delivery | TenureError]:
        return self._in_a_transaction(lambda instant: self._settle(settlements, instant))

    def settle_and_claim(
        self, settlements: Sequence[Settlement], claim: DeliveryClaim
    ) -> tuple[list[Delivery | TenureError], list[Delivery]]:
        return self._in_a_transaction(
            lambda instant: (self._settle(settlements, instant), self._claim(claim, instant))
        )

    def _in_a_transaction(self, work: Callable[[Instant], T]) -> T:
        """Repeated once if the cache was outdated: the first attempt has emptied it."""
        try:
            with transaction(self._connection):
                return work(self._clock.read())
        except _CacheOutdated:
            with transaction(self._connection):
                return work(self._clock.read())

    def _settle(
        self, settlements: Sequence[Settlement], instant: Instant
    ) -> list[Delivery | TenureError]:
        found, written = self._found(settlements), _Written({}, set(), set())
        answers = [_answer(each, found, written, instant) for each in settlements]
        self._write(written)
        return answers

    def _found(self, settlements: Sequence[Settlement]) -> _Found:
        found = self._claimed.take(settlements)
        unknown = [each.delivery_id for each in settlements if each.delivery_id not in found]
        if unknown:
            (text,) = self._sql.one("deliveries_by_id", json.dumps(unknown))
            found |= {kept.delivery.id: kept for kept in deliveries_of(text)}
        return found

    def _write(self, written: _Written) -> None:
        changed = list(written.rows.values())
        if changed and self._sql.count("put_deliveries", record_rows.text(changed)) < len(changed):
            raise _CacheOutdated
        if written.settled:
            self._sql.do("unblock_heads", record_rows.text(list(written.settled)))
        for seq in written.failing:
            self._show_newest_dead_letter(seq)

    def _show_newest_dead_letter(self, seq: int) -> None:
        head = rows.head_of(self._sql.one("head_by_seq", seq))
        row = self._sql.first("newest_dead_letter", seq)
        error = as_callback_error(delivery_of(row[0]).delivery) if row else None
        if error != head.run.callback_error:
            run = replace(head.run, callback_error=error)
            self._sql.do("set_detail", rows.detail_text(run), seq)
            self._recent.forget(run.run_id)


def _answer(
    settlement: Settlement, found: _Found, written: _Written, instant: Instant
) -> Delivery | TenureError:
    try:
        if settlement.delivery_id not in found:
            raise DeliveryNotFound(settlement.delivery_id)
        kept = found[settlement.delivery_id]
        delivery = kept.delivery
        outcome = settlement.outcome
        if not isinstance(outcome, Delivered):  # which has no values to check
            outcome = storable(delivery.run_id, settlement).outcome
        rest = instant.rest(outcome.delay) if isinstance(outcome, RetryLater) else None
        due_at = rest.wall if rest else instant.now
        settled = settle(delivery, settlement.token, outcome, at=instant.now, due_at=due_at)
    except TenureError as refusal:
        return refusal
    if settled is not delivery:
        found[delivery.id] = kept._replace(delivery=settled)
        written.rows[kept.number] = columns_of(kept, settled, rest)
        if settled.state is not DeliveryState.WAITING:
            written.settled.add((kept.seq, settled.target.name))
            if settled.died_at or delivery.died_at:
                written.failing.add(kept.seq)
    return settled
