"""Deliveries as rows, and back. Rows come and go many at once, as one JSON text."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from tenure.model.codec import decode
from tenure.model.errors import StoreIncompatible
from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import RecordedEvent
from tenure.stores.lease_clock import LeaseEnd
from tenure.stores.sqlite import rows


class Kept(NamedTuple):
    """A delivery, the number of its run, and its own."""

    delivery: Delivery
    seq: int
    number: int


class _Row(Struct, array_like=True, gc=False):
    """``statements.DELIVERY``."""

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
        target=_target(row),
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


def _target(row: _Row) -> CallbackTarget:
    for target in row.callbacks:
        if target.name == row.target:
            return target
    raise StoreIncompatible(f"callback {row.id} goes to a target its run does not have")


def columns_of(before: Kept, delivery: Delivery, rest: LeaseEnd | None = None) -> tuple[Any, ...]:
    """For ``put_deliveries``. ``rest``: until when nobody may take it."""
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
