"""Attempts that ended, many in one transaction of the writer's thread.

All rows are read at once and all changes written at once: a statement for each would cost more
than the rest. Refusals come before anything is gathered, so none needs a savepoint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw
from msgspec.structs import replace

from tenure.model.codec import storable
from tenure.model.errors import DeliveryNotFound, TenureError
from tenure.model.outbox import Delivery, RetryLater, Settlement, as_callback_error, settle
from tenure.model.status import DeliveryState
from tenure.stores.lease_clock import Instant, LeaseClock
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.database import transaction
from tenure.stores.sqlite.delivery_rows import columns_of, delivery_of
from tenure.stores.sqlite.recent import Recent
from tenure.stores.sqlite.statements import Statements

_Found = dict[str, tuple[Delivery, int]]
"""By id: a delivery as it now stands, and the number of its run."""


class Settling:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock, recent: Recent) -> None:
        """``recent``: what the writer of this connection remembers, to be corrected."""
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
        try:
            with transaction(self._connection):
                return self._settle(settlements, self._clock.read())
        except BaseException:
            self._sql.drop()
            raise

    def _settle(
        self, settlements: Sequence[Settlement], instant: Instant
    ) -> list[Delivery | TenureError]:
        found = self._find(settlements)
        mourning: set[int] = set()
        answers = [self._answer(each, found, mourning, instant) for each in settlements]
        self._sql.flush()
        for seq in mourning:
            self._show_newest_dead_letter(seq)
        return answers

    def _find(self, settlements: Sequence[Settlement]) -> _Found:
        ids = json.dumps([settlement.delivery_id for settlement in settlements])
        found = self._sql.all("deliveries_by_id", ids)
        return {row[0]: (delivery_of(row), row[-2]) for row in found}

    def _answer(
        self, settlement: Settlement, found: _Found, mourning: set[int], instant: Instant
    ) -> Delivery | TenureError:
        try:
            if settlement.delivery_id not in found:
                raise DeliveryNotFound(settlement.delivery_id)
            delivery, seq = found[settlement.delivery_id]
            outcome = storable(delivery.run_id, settlement).outcome
            rest = instant.rest(outcome.delay) if isinstance(outcome, RetryLater) else None
            due_at = rest.wall if rest else instant.now
            settled = settle(delivery, settlement.token, outcome, at=instant.now, due_at=due_at)
        except TenureError as refusal:
            return refusal
        if settled is not delivery:
            found[delivery.id] = settled, seq
            self._sql.later("put_delivery", *columns_of(settled, rest))
            if settled.state is not DeliveryState.WAITING:
                self._sql.later("unblock_head", seq, settled.target.name)
                if settled.died_at or delivery.died_at:
                    mourning.add(seq)
        return settled

    def _show_newest_dead_letter(self, seq: int) -> None:
        head = rows.head_of(self._sql.one("head_by_seq", seq))
        row = self._sql.first("newest_dead_letter", seq)
        error = as_callback_error(delivery_of(row)) if row else None
        if error != head.run.callback_error:
            run = replace(head.run, callback_error=error)
            self._sql.do("set_detail", rows.detail_text(run), seq)
            self._recent.forget(run.run_id)
