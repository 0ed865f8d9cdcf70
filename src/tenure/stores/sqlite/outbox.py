"""Callbacks that wait, inside one transaction of the writer's thread."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.errors import DeliveryNotFound
from tenure.model.events import RecordedEvent
from tenure.model.outbox import Delivery, Outcome, RetryLater, as_callback_error, requeue, settle
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.stores.lease_clock import LeaseClock, LeaseEnd
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.database import transaction
from tenure.stores.sqlite.recent import Recent
from tenure.stores.sqlite.statements import DELIVERY_COLUMNS, Row, Statements

_recorded = msgspec.json.Decoder(RecordedEvent)


class Outboxing:
    def __init__(
        self, connection: apsw.Connection, clock: LeaseClock, recent: Recent | None = None
    ) -> None:
        """``recent``: what the writer of this connection remembers, to be corrected."""
        self._recent = recent or Recent()
        self._connection = connection
        self._sql = Statements(connection)
        self._clock = clock

    def claim(self, token: str, limit: int, seconds: float) -> list[Delivery]:
        with transaction(self._connection):
            instant = self._clock.read()
            until = instant.until(seconds)
            self._sql.do("end_rests", *instant.boot)
            numbers = self._sql.all("deliveries_under_token", token) or self._sql.all(
                "due_deliveries", max(limit, 0)
            )
            for (number,) in numbers:
                self._sql.do("hold_delivery", token, until.boot_id, until.nanoseconds, number)
            return [
                delivery_of(self._sql.one("delivery_by_number", number)) for (number,) in numbers
            ]

    def settle(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        with transaction(self._connection):
            delivery, seq = self._find(delivery_id)
            instant = self._clock.read()
            rest = instant.rest(outcome.delay) if isinstance(outcome, RetryLater) else None
            due_at = rest.wall if rest else instant.now
            settled = settle(delivery, token, outcome, at=instant.now, due_at=due_at)
            if settled is not delivery:
                self._put(settled, rest)
                if settled.state is not DeliveryState.WAITING:
                    self._sql.do("unblock_head", seq, settled.target.name)
                    self._show_newest_dead_letter(seq)
            return settled

    def requeue(self, delivery_id: str) -> Delivery:
        with transaction(self._connection):
            delivery, seq = self._find(delivery_id)
            again = requeue(delivery, self._clock.now())
            if again is not delivery:
                self._put(again)
                self._sql.do("block_all_but_head", seq, again.target.name)
            return again

    def page(
        self, state: DeliveryState | None, run_id: str | None, before: int, limit: int
    ) -> list[tuple[int, Delivery]]:
        conditions, values = "d.number < ?", [before]
        if run_id is not None:
            row = self._sql.first("seq_of_run", run_id)
            if row is None:
                return []
            conditions += " and d.seq = ?"
            values.append(row[0])
        bound: list[Any] = [*values]
        if state is not None:
            conditions += " and d.state = ?"
            bound.append(state.value)
        found = self._sql.built(
            f"select {DELIVERY_COLUMNS} where {conditions} order by d.number desc limit ?",
            (*bound, limit),
        )
        return [(row[-1], delivery_of(row)) for row in found]

    def _find(self, delivery_id: str) -> tuple[Delivery, int]:
        row = self._sql.first("delivery_by_id", delivery_id)
        if row is None:
            raise DeliveryNotFound(delivery_id)
        return delivery_of(row), row[-2]

    def _put(self, delivery: Delivery, rest: LeaseEnd | None = None) -> None:
        boot_id, nanoseconds, _ = rows.lease_columns(rest)
        self._sql.do(
            "put_delivery",
            delivery.state.value,
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
            delivery.id,
        )

    def _show_newest_dead_letter(self, seq: int) -> None:
        head = rows.head_of(self._sql.one("head_by_seq", seq))
        row = self._sql.first("newest_dead_letter", seq)
        error = as_callback_error(delivery_of(row)) if row else None
        if error != head.run.callback_error:
            run = replace(head.run, callback_error=error)
            self._sql.do("set_detail", rows.detail_text(run), seq)
            self._recent.forget(run.run_id)


def delivery_of(row: Row) -> Delivery:
    (
        delivery_id,
        run_id,
        workflow_name,
        callbacks,
        target,
        event,
        run_status,
        state,
        attempts,
        due_at,
        settled_at,
        died_at,
        last_error,
        redelivery,
        token,
        settled_token,
        _seq,
        _number,
    ) = row
    return Delivery(
        id=delivery_id,
        run_id=run_id,
        workflow_name=workflow_name,
        target=_target(callbacks, target),
        event=decode(_recorded, event),
        run_status=RunStatus(run_status),
        state=DeliveryState(state),
        attempts=attempts,
        due_at=rows.moment(due_at),
        settled_at=rows.moment_or_none(settled_at),
        died_at=rows.moment_or_none(died_at),
        last_error=last_error,
        redelivery=bool(redelivery),
        token=token,
        settled_token=settled_token,
    )


def _target(callbacks: str | None, name: str) -> CallbackTarget:
    return next(target for target in rows.callbacks_of(callbacks) if target.name == name)
