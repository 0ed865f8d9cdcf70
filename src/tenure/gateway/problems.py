"""Errors as problem documents: one row for each class that may reach a client, and start-up errors.

Clients get texts from here or from the model's own messages, never from a driver, a path or a
traceback; those go to the gateway's log.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenure.model import errors
from tenure.model.errors import TenureError
from tenure.wire.answers import PREFIX, Problem


class Kind(NamedTuple):
    """A kind of problem. ``detail`` replaces the error's message, ``advice`` follows it."""

    name: str
    status: int
    title: str
    detail: str | None = None
    advice: str | None = None

    def problem(self, detail: str = "", **facts: Any) -> Problem:
        said = self.detail or detail
        if self.advice:
            said = f"{said}; {self.advice}" if said else self.advice
        return Problem(
            type=PREFIX + self.name, title=self.title, status=self.status, detail=said, **facts
        )


MALFORMED = Kind("malformed", 400, "Malformed request")
UNAUTHORIZED = Kind("unauthorized", 401, "A token is required")
FORBIDDEN = Kind("forbidden", 403, "This token may not do that")
FOREIGN_ORIGIN = Kind("foreign-origin", 403, "Request from another site")
NOT_FOUND = Kind("not-found", 404, "Not found")
RUN_NOT_FOUND = Kind(
    "run-not-found", 404, "No such run", advice="GET /v1/runs lists the runs there are"
)
DELIVERY_NOT_FOUND = Kind(
    "delivery-not-found",
    404,
    "No such callback",
    advice="GET /v1/callbacks lists the callbacks there are",
)
OUTPUT_NOT_FOUND = Kind("output-not-found", 404, "No such output")
METHOD_NOT_ALLOWED = Kind("method-not-allowed", 405, "Method not allowed")
RUN_EXISTS = Kind("run-exists", 409, "This run_id is taken")
KEY_REUSED = Kind(
    "idempotency-key-reused",
    409,
    "This Idempotency-Key was used for another request",
)
LEASE_HELD = Kind("lease-held", 409, "The run has an owner", advice="try again when it ends")
LEASE_LOST = Kind(
    "lease-lost", 409, "The run has another owner by now", advice="stop working on it"
)
VERSION_CONFLICT = Kind(
    "version-conflict",
    409,
    "The run has changed meanwhile",
    advice="decide again on the newer record",
)
INVALID_TRANSITION = Kind("invalid-transition", 409, "Not allowed in the run's present state")
NOT_RUNNABLE = Kind("not-runnable", 409, "The run is not runnable")
TOO_SLOW = Kind("too-slow", 408, "The request did not arrive in time")
TOO_LARGE = Kind("too-large", 413, "The request is too large")
UNSUPPORTED_MEDIA = Kind("unsupported-media-type", 415, "The body is not JSON")
STORE_REJECTED = Kind("store-rejected", 422, "The store cannot hold this value")
INVALID_WORKFLOW = Kind("invalid-workflow", 422, "The workflow has mistakes")
INVALID_OPTIONS = Kind("invalid-options", 422, "Invalid options")
TOO_MANY = Kind("too-many-requests", 429, "Too many requests")
DEFECT = Kind(
    "defect",
    500,
    "A defect of Tenure",
    detail="details are in the gateway's log; please report it",
)
NOT_SUPPORTED = Kind("not-supported", 501, "This store cannot do that")
STORE_UNAVAILABLE = Kind(
    "store-unavailable",
    503,
    "The store did not answer",
    detail="it may or may not have happened: send the same request again in a moment",
)
STORE_UNUSABLE = Kind(
    "store-unusable",
    503,
    "The store cannot be used",
    detail="it is gone, or its schema is another version's; run `tenure doctor` on the gateway's "
    "machine",
)
BUSY = Kind("busy", 503, "The gateway is busy", advice="try again in a moment")

KINDS: tuple[Kind, ...] = tuple(each for each in tuple(vars().values()) if isinstance(each, Kind))
"""Every kind of problem."""

_ROWS: tuple[tuple[type[TenureError], Kind], ...] = (
    (errors.RunNotFound, RUN_NOT_FOUND),
    (errors.DeliveryNotFound, DELIVERY_NOT_FOUND),
    (errors.RunExists, RUN_EXISTS),
    (errors.LeaseHeld, LEASE_HELD),
    (errors.LeaseLost, LEASE_LOST),
    (errors.VersionConflict, VERSION_CONFLICT),
    (errors.InvalidTransition, INVALID_TRANSITION),
    (errors.NotRunnable, NOT_RUNNABLE),
    (errors.StoreRejected, STORE_REJECTED),
    (errors.InvalidWorkflow, INVALID_WORKFLOW),
    (errors.InvalidOptions, INVALID_OPTIONS),
    (errors.InvalidRunId, MALFORMED),
    (errors.InvalidCursor, MALFORMED),
    (errors.KeyReused, KEY_REUSED),
    (errors.NotSupported, NOT_SUPPORTED),
    (errors.StoreUnavailable, STORE_UNAVAILABLE),
    (errors.StoreError, STORE_UNUSABLE),
)
_FACTS = {
    "run_id": "run_id",
    "delivery_id": "delivery_id",
    "mistakes": "mistakes",
    "problems": "problems",
    "owner_id": "owner_id",
    "fence": "fence",
    "expires_at": "expires_at",
    "base_version": "base_version",
    "version": "version",
    "status": "run_status",
    "cancel_requested_at": "cancel_requested_at",
}
"""Attributes of errors, and their names in a problem document."""


class Refusal(TenureError):
    """A request refused by the gateway itself."""

    def __init__(self, kind: Kind, detail: str = "", headers: dict[str, str] | None = None) -> None:
        self.problem = kind.problem(detail)
        self.headers = headers or {}
        super().__init__(self.problem.detail)


def kind_of(error: Exception) -> Kind:
    return next((kind for of, kind in _ROWS if isinstance(error, of)), DEFECT)


def problem_of(error: Exception) -> Problem:
    if isinstance(error, Refusal):
        return error.problem
    kind = kind_of(error)
    if kind is DEFECT:
        return kind.problem()
    facts = {said: getattr(error, known) for known, said in _FACTS.items() if hasattr(error, known)}
    told = {name: value for name, value in facts.items() if value is not None}
    return kind.problem(str(error), **told)


# Why a gateway does not start. Defined here because commands need these before they load the
# gateway's libraries.


class NotSafe(TenureError):
    """It would serve any client that can reach it, without tokens."""


class CannotListen(TenureError):
    """The address is taken, not ours, or not permitted."""
