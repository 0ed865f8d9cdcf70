"""Callback deliveries as durable values: their order, how an attempt is settled, dead letters.

A delivery waits until a relay claims it under a token for a short lease, sends it, and settles it
under that token. Per run and target they are sent in order of (version, seq), one at a time: a
waiting one holds back the later ones of its own run and target and nothing else.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from tenure.model import status
from tenure.model.errors import DeliveryLost, InvalidTransition
from tenure.model.snapshot import CallbackError, CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import RecordedEvent


class Delivery(Struct, frozen=True, gc=False, kw_only=True):
    """One callback: its event, its target, and its attempts so far."""

    id: str
    run_id: str
    workflow_name: str
    target: CallbackTarget
    event: RecordedEvent
    run_status: RunStatus
    """The run's status after the change that caused this callback."""
    state: DeliveryState = DeliveryState.WAITING
    attempts: int = 0
    due_at: datetime
    settled_at: datetime | None = None
    last_error: str | None = None
    died_at: datetime | None = None
    """When it became a dead letter; kept through a redelivery until that succeeds."""
    redelivery: bool = False
    token: str | None = None
    """Of the claim that holds it."""
    settled_token: str | None = None
    """Of the last settled attempt: identifies a repeated settlement."""


class Delivered(Struct, frozen=True, gc=False, tag="delivered"):
    """The target accepted it."""


class RetryLater(Struct, frozen=True, gc=False, tag="retry"):
    """Try again ``delay`` seconds from now, by the store's clock."""

    delay: float
    error: str


class GiveUp(Struct, frozen=True, gc=False, tag="dead"):
    """Make it a dead letter."""

    error: str


class PutBack(Struct, frozen=True, gc=False, tag="put-back"):
    """Nothing was sent: it waits as before the claim, for any relay."""


Outcome = Delivered | RetryLater | GiveUp | PutBack


class Settlement(Struct, frozen=True, gc=False):
    """How the attempt under ``token`` ended."""

    delivery_id: str
    token: str
    outcome: Outcome


_PORTS = {"http": 80, "https": 443}


def origin_of(target: CallbackTarget) -> str:
    """The receiver behind a target: scheme, host and port of its URL.

    Targets of one origin share outages, and a relay limits attempts per origin. A target without a
    valid URL is an origin by itself.
    """
    return target.name if target.url is None else _origin(target.url)


@lru_cache(maxsize=4096)
def _origin(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return url
    if not parts.hostname:
        return url
    return f"{parts.scheme}://{parts.hostname}:{port}"


def settle(
    delivery: Delivery, token: str, outcome: Outcome, *, at: datetime, due_at: datetime
) -> Delivery:
    """The delivery after one attempt. Settling the same attempt again changes nothing.

    ``due_at`` is when a retry falls due; unused otherwise.
    """
    if delivery.settled_token == token:
        return delivery
    if delivery.token != token or delivery.state is not DeliveryState.WAITING:
        raise DeliveryLost(delivery.run_id, f"callback {delivery.id} is held by another relay")
    delivery = replace(delivery, token=None, settled_token=token)
    if isinstance(outcome, PutBack):
        return delivery
    delivery = replace(delivery, attempts=delivery.attempts + 1)
    match outcome:
        case Delivered():
            return replace(
                delivery,
                state=DeliveryState.DELIVERED,
                settled_at=at,
                died_at=None,
                last_error=None,
            )
        case GiveUp(error):
            return replace(
                delivery,
                state=DeliveryState.DEAD,
                settled_at=at,
                died_at=at,
                last_error=error,
            )
        case RetryLater(_, error):
            return replace(delivery, due_at=due_at, last_error=error)


def requeue(delivery: Delivery, at: datetime) -> Delivery:
    """Send a settled delivery again under the same id. One that waits stays as it is."""
    if delivery.state is DeliveryState.WAITING:
        return delivery
    if DeliveryState.WAITING not in status.DELIVERY[delivery.state]:
        raise InvalidTransition(delivery.run_id, f"callback {delivery.id} is {delivery.state}")
    return replace(
        delivery,
        state=DeliveryState.WAITING,
        attempts=0,
        due_at=at,
        settled_at=None,
        redelivery=True,
        token=None,
        settled_token=None,
    )


def as_callback_error(dead: Delivery) -> CallbackError:
    """The ``callback_error`` of a run for its dead letter."""
    return CallbackError(
        target=dead.target.name,
        event=dead.event.type,
        error=dead.last_error or "",
        attempts=dead.attempts,
        at=dead.died_at or dead.due_at,
    )
