"""Attempts that ended, many in one transaction of the writer's thread.

Rows that we did not claim ourselves are read at once, and all changes written at once: a statement
for each would cost more than the rest. Refusals come before anything is written, so none needs a
savepoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

import apsw
from msgspec.structs import replace

from tenure.model.codec import storable
from tenure.model.errors import DeliveryNotFound, TenureError
from tenure.model.outbox import (
    Delivered,
    Delivery,
    RetryLater,
    Settlement,
    as_callback_error,
    settle,
)
from tenure.model.status import DeliveryState
from tenure.stores import record_rows
from tenure.stores.lease_clock import Instant, LeaseClock
from tenure.stores.recent import Recent
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.database import transaction
from tenure.stores.sqlite.delivery_rows import Kept, columns_of, deliveries_of, delivery_of
from tenure.stores.sqlite.outbox import Outboxing
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Statements

T = TypeVar("T")

_Found = dict[str, Kept]
"""By id, as it now stands."""


class _NotAsRemembered(Exception):
    """A row that we claimed is somebody else's by now, or gone."""


class _Written(NamedTuple):
    """What a transaction is about to write."""

    rows: dict[int, tuple[Any, ...]]
    """By number: whoever is settled twice is written once."""
    settled: set[tuple[int, str]]
    """Runs and targets whose next callback may go out."""
    mourning: set[int]
    """Runs whose newest dead letter may have changed."""


class Settling:
    def __init__(
        self,
        connection: apsw.Connection,
        clock: LeaseClock,
        outboxing: Outboxing,
        recent: Recent[Head],
    ) -> None:
        """``recent``: what the writer of this connection remembers, to be corrected."""
        self._outboxing = outboxing
        self._connection = connection
        self._sql = Statements(connection)
        self._clock = clock
        self._recent = recent

    def one(self, settlement: Settlement) -> Delivery:
        (answer,) = self.many([settlement])
        if isinstance(answer, TenureError):
            raise answer
        return answer

    def many(self, settlements: Sequence[Settlement]) -> list[Delivery | TenureError]:
        return self._in_a_transaction(lambda instant: self._settle(settlements, instant))

    def many_and_claim(
        self,
        settlements: Sequence[Settlement],
        token: str,
        limit: int,
        seconds: float,
        per_origin: int | None,
        except_origins: Collection[str],
        only: Collection[str] | None,
    ) -> tuple[list[Delivery | TenureError], list[Delivery]]:
        return self._in_a_transaction(
            lambda instant: (
                self._settle(settlements, instant),
                self._outboxing.claim_at(
                    instant, token, limit, seconds, per_origin, except_origins, only
                ),
            )
        )

    def _in_a_transaction(self, work: Callable[[Instant], T]) -> T:
        """Once more if something was not as we remember it: that is forgotten by then."""
        try:
            with transaction(self._connection):
                return work(self._clock.read())
        except _NotAsRemembered:
            with transaction(self._connection):
                return work(self._clock.read())

    def _settle(
        self, settlements: Sequence[Settlement], instant: Instant
    ) -> list[Delivery | TenureError]:
        found, written = self._find(settlements), _Written({}, set(), set())
        answers = [_answer(each, found, written, instant) for each in settlements]
        self._write(written)
        return answers

    def _find(self, settlements: Sequence[Settlement]) -> _Found:
        found = self._outboxing.claimed.take(settlements)
        unknown = [each.delivery_id for each in settlements if each.delivery_id not in found]
        if unknown:
            (text,) = self._sql.one("deliveries_by_id", json.dumps(unknown))
            found |= {kept.delivery.id: kept for kept in deliveries_of(text)}
        return found

    def _write(self, written: _Written) -> None:
        changed = list(written.rows.values())
        if changed and self._sql.count("put_deliveries", record_rows.text(changed)) < len(changed):
            raise _NotAsRemembered
        if written.settled:
            self._sql.do("unblock_heads", record_rows.text(list(written.settled)))
        for seq in written.mourning:
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
        if not isinstance(outcome, Delivered):  # the one that brings no value of its own
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
                written.mourning.add(kept.seq)
    return settled
