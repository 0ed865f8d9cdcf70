"""Deliveries as rows, and back."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tenure.model.codec import decode
from tenure.model.errors import StoreIncompatible
from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import RecordedEvent
from tenure.stores.record_rows import text


class Kept(NamedTuple):
    """A delivery, the number of its run, and its own."""

    delivery: Delivery
    seq: int
    number: int


class _Row(Struct, array_like=True, gc=False):
    """The fragment ``delivery``."""

    id: str
    run_id: str
    workflow_name: str
    callbacks: list[CallbackTarget]
    target: str
    event: RecordedEvent
    run_status: RunStatus
    state: DeliveryState
    attempts: int
    due_at: datetime
    settled_at: datetime | None
    died_at: datetime | None
    last_error: str | None
    redelivery: bool
    token: str | None
    settled_token: str | None
    seq: int
    number: int


class Changed(Struct, gc=False, omit_defaults=True, kw_only=True):
    """For ``put_deliveries``. ``delay``: due so many seconds from now, by the server's clock. The
    error is JSON within JSON, as in ``batch``."""

    number: int
    state: str
    attempts: int
    due_at: datetime
    delay: float | None = None
    settled_at: datetime | None = None
    died_at: datetime | None = None
    redelivery: bool
    token: str | None = None
    settled_token: str | None = None
    last_error: str | None = None


_rows = msgspec.json.Decoder(_Row)


def delivery_of(found: str) -> Kept:
    row = decode(_rows, found)
    delivery = Delivery(
        id=row.id,
        run_id=row.run_id,
        workflow_name=row.workflow_name,
        target=_target(row),
        event=row.event,
        run_status=row.run_status,
        state=row.state,
        attempts=row.attempts,
        due_at=row.due_at,
        settled_at=row.settled_at,
        last_error=row.last_error,
        died_at=row.died_at,
        redelivery=row.redelivery,
        token=row.token,
        settled_token=row.settled_token,
    )
    return Kept(delivery, row.seq, row.number)


def _target(row: _Row) -> CallbackTarget:
    for target in row.callbacks:
        if target.name == row.target:
            return target
    raise StoreIncompatible(f"callback {row.id} goes to a target its run does not have")


def changed(number: int, delivery: Delivery, delay: float | None = None) -> Changed:
    return Changed(
        number=number,
        state=delivery.state,
        attempts=delivery.attempts,
        due_at=delivery.due_at,
        delay=delay,
        settled_at=delivery.settled_at,
        died_at=delivery.died_at,
        redelivery=delivery.redelivery,
        token=delivery.token,
        settled_token=delivery.settled_token,
        last_error=None if delivery.last_error is None else text(delivery.last_error),
    )
