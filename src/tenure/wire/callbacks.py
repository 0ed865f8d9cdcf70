"""Callbacks: payload, targets without credentials, and deliveries as shown to programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import asdict, replace

from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget, ErrorInfo
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import RecordedEvent


class CallbackPayload(Struct, frozen=True, kw_only=True):
    """``status`` is that of the run, step or host that the event is about."""

    type: str
    run_id: str
    workflow_name: str
    status: str
    run_status: RunStatus
    step: str | None
    host: str | None
    timestamp: datetime
    error: ErrorInfo | None
    version: int
    seq: int


def payload(event: RecordedEvent, workflow_name: str, run_status: RunStatus) -> CallbackPayload:
    return CallbackPayload(
        type=event.type,
        run_id=event.run_id,
        workflow_name=workflow_name,
        status=event.status or "",
        run_status=run_status,
        step=event.step,
        host=event.host,
        timestamp=event.at,
        error=event.error,
        version=event.version,
        seq=event.seq,
    )


MASK = "***"


class ShownTarget(Struct, frozen=True, kw_only=True):
    """A target without the credentials in its headers, URL and query."""

    name: str
    url: str | None
    events: tuple[str, ...]
    secret_env: str | None
    headers: dict[str, str]


def shown_target(target: CallbackTarget) -> ShownTarget:
    return ShownTarget(**asdict(masked_target(target)))


def masked_target(target: CallbackTarget) -> CallbackTarget:
    url = target.url and address_of(target.url)
    return replace(target, url=url, headers=dict.fromkeys(target.headers, MASK))


def address_of(url: str) -> str:
    """``url`` without anything that may be a credential; the path stays, to tell targets apart."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    _, at, host = parts.netloc.rpartition("@")
    return parts._replace(
        netloc=f"{MASK}@{host}" if at else host, query=MASK if parts.query else "", fragment=""
    ).geturl()


# Deliveries without secrets and the relay's internal fields.


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
    """When a waiting one may be sent."""
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
