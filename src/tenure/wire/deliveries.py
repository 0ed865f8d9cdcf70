"""Callbacks as programs are shown them: everything but secrets and the relay's own marks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from tenure.model.outbox import Delivery
from tenure.model.status import DeliveryState
from tenure.wire.callback import CallbackPayload, payload
from tenure.wire.targets import ShownTarget, shown_target


class CallbackSummary(Struct, frozen=True, kw_only=True):
    id: str
    state: DeliveryState
    type: str
    run_id: str
    workflow_name: str
    version: int
    seq: int
    target: ShownTarget
    attempts: int
    redelivery: bool
    due_at: datetime | None
    """Of one that waits: when it may be sent."""
    settled_at: datetime | None
    last_error: str | None


class CallbackDetails(CallbackSummary, frozen=True, kw_only=True):
    payload: CallbackPayload


def summary_of(delivery: Delivery) -> CallbackSummary:
    return CallbackSummary(**_facts(delivery))


def details_of(delivery: Delivery) -> CallbackDetails:
    said = payload(delivery.event, delivery.workflow_name, delivery.run_status)
    return CallbackDetails(**_facts(delivery), payload=said)


def _facts(delivery: Delivery) -> dict[str, Any]:
    waits = delivery.state is DeliveryState.WAITING
    return {
        "id": delivery.id,
        "state": delivery.state,
        "type": delivery.event.type,
        "run_id": delivery.run_id,
        "workflow_name": delivery.workflow_name,
        "version": delivery.event.version,
        "seq": delivery.event.seq,
        "target": shown_target(delivery.target),
        "attempts": delivery.attempts,
        "redelivery": delivery.redelivery,
        "due_at": delivery.due_at if waits else None,
        "settled_at": delivery.settled_at,
        "last_error": delivery.last_error,
    }
