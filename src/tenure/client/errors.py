"""Problem documents turned back into the errors they were made from."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenure.model import errors
from tenure.model.errors import Refused, StoreUnavailable, TenureError
from tenure.model.status import RunStatus
from tenure.wire.answers import PREFIX, Problem

_problems = msgspec.json.Decoder(Problem)
_MAX_DETAIL_CHARACTERS = 300


def problem_in(status: int, data: bytes) -> Problem:
    """The problem in an answer, of the gateway or of a proxy in between."""
    try:
        return _problems.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = data[:_MAX_DETAIL_CHARACTERS].decode("utf-8", "replace").strip()
        return Problem(type="about:blank", title="", status=status, detail=f"{status} {text}")


def name_of(problem: Problem) -> str:
    return problem.type.removeprefix(PREFIX)


def error_of(
    problem: Problem, address: str, malformed: type[TenureError] = errors.StoreIncompatible
) -> TenureError:
    """The error with its fields. Unknown problems are mapped by their status: those worth a retry
    become ``StoreUnavailable``."""
    made = _ROWS.get(name_of(problem))
    if made is not None:
        return made(problem)
    said = f"{address}: {problem.detail or problem.title}"
    if problem.status == 400:
        return malformed(said)
    if problem.status in (401, 403):
        return errors.NotPermitted(said)
    if problem.status == 501:
        return errors.NotSupported(problem.detail)
    if problem.status in (408, 425, 429) or problem.status >= 500:
        return StoreUnavailable(said)
    return errors.StoreIncompatible(
        f"{said}. Is a Tenure gateway there, of a version like this one's?"
    )


def _refused(kind: type[Refused]) -> Callable[[Problem], TenureError]:
    def made(problem: Problem) -> TenureError:
        run_id = problem.run_id or ""
        return kind(run_id, problem.detail.removeprefix(f"run {run_id}: "))

    return made


def _lease_lost(problem: Problem) -> TenureError:
    return errors.LeaseLost(
        problem.run_id or "", fence=problem.fence or 0, owner_id=problem.owner_id
    )


def _lease_held(problem: Problem) -> TenureError:
    return errors.LeaseHeld(
        problem.run_id or "", owner_id=problem.owner_id, expires_at=problem.expires_at
    )


def _version_conflict(problem: Problem) -> TenureError:
    return errors.VersionConflict(
        problem.run_id or "",
        base_version=problem.base_version,
        version=problem.version or 0,
        fence=problem.fence or 0,
        status=problem.run_status or RunStatus.RUNNING,
        cancel_requested_at=problem.cancel_requested_at,
    )


_ROWS: dict[str, Callable[[Problem], TenureError]] = {
    "run-not-found": lambda problem: errors.RunNotFound(problem.run_id or ""),
    "delivery-not-found": lambda problem: errors.DeliveryNotFound(problem.delivery_id or ""),
    "output-not-found": lambda problem: errors.OutputNotFound(problem.detail),
    "run-exists": lambda problem: errors.RunExists(problem.run_id or ""),
    "idempotency-key-reused": lambda problem: errors.KeyReused(),
    "lease-lost": _lease_lost,
    "lease-held": _lease_held,
    "version-conflict": _version_conflict,
    "invalid-transition": _refused(errors.InvalidTransition),
    "not-runnable": _refused(errors.NotRunnable),
    "store-rejected": _refused(errors.StoreRejected),
    "too-large": _refused(errors.StoreRejected),
    "invalid-workflow": lambda problem: errors.InvalidWorkflow(problem.mistakes),
    "invalid-options": lambda problem: errors.InvalidOptions(problem.problems),
}
