"""A delivery as a row, and back."""

from __future__ import annotations

import msgspec

from tenure.model.codec import decode
from tenure.model.events import RecordedEvent
from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.stores.lease_clock import LeaseEnd
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.statements import Row

_recorded = msgspec.json.Decoder(RecordedEvent)


def columns_of(delivery: Delivery, rest: LeaseEnd | None = None) -> Row:
    """For ``put_delivery``. ``rest``: until when nobody may take it."""
    boot_id, nanoseconds, _ = rows.lease_columns(rest)
    return (
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
