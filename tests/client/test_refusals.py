"""An error that crosses the line comes out as it went in."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from tenure.client.errors import error_of, problem_in
from tenure.gateway.problems import FORBIDDEN, TOO_MANY, UNAUTHORIZED, Refusal, problem_of
from tenure.model import errors
from tenure.model.errors import TenureError
from tenure.model.status import RunStatus

AT = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
SAME = [
    errors.RunNotFound("run-00001"),
    errors.DeliveryNotFound("delivery-1"),
    errors.RunExists("run-00001"),
    errors.KeyReused(),
    errors.LeaseLost("run-00001", fence=7, owner_id="somebody"),
    errors.LeaseLost("run-00001", fence=7, owner_id=None),
    errors.LeaseHeld("run-00001", owner_id="somebody", expires_at=AT),
    errors.LeaseHeld("run-00001", owner_id="somebody", expires_at=None),
    errors.NotRunnable("run-00001", "not runnable: it waits for approval"),
    errors.VersionConflict(
        "run-00001",
        base_version=3,
        version=5,
        fence=2,
        status=RunStatus.QUEUED,
        cancel_requested_at=AT,
    ),
    errors.InvalidTransition("run-00001", "success does not become running"),
    errors.StoreRejected("run-00001", "run run-00001: cannot be stored"),
    errors.InvalidOptions(["priority: is not a number", "queue: is empty"]),
    errors.InvalidWorkflow([errors.Mistake(message="no steps", line=3, column=1, hint="add one")]),
]


def crossed(error: TenureError) -> TenureError:
    problem = problem_of(error)
    return error_of(problem_in(problem.status, msgspec.json.encode(problem)), "http://gateway")


@pytest.mark.parametrize("error", SAME, ids=lambda error: type(error).__name__)
def test_the_same_error_with_the_same_fields(error: TenureError) -> None:
    other = crossed(error)
    assert type(other) is type(error)
    assert (str(other), vars(other)) == (str(error), vars(error))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.StoreUnavailable("secret host name"), errors.StoreUnavailable),
        (errors.StoreLost("secret path"), errors.StoreUnavailable),
        (Refusal(TOO_MANY, "ask again in 2 seconds"), errors.StoreUnavailable),
        (Refusal(UNAUTHORIZED, "send a token"), errors.NotPermitted),
        (Refusal(FORBIDDEN, "a viewer token"), errors.NotPermitted),
        (errors.NotSupported("FileStore keeps no leases"), errors.NotSupported),
    ],
)
def test_what_only_a_gateway_says(error: TenureError, kind: type[TenureError]) -> None:
    other = crossed(error)
    assert type(other) is kind
    assert "secret" not in str(other)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (502, errors.StoreUnavailable),
        (504, errors.StoreUnavailable),
        (403, errors.NotPermitted),
        (404, errors.StoreIncompatible),
        (301, errors.StoreIncompatible),
    ],
)
def test_what_stands_in_between_speaks_no_json(status: int, kind: type[TenureError]) -> None:
    said = error_of(problem_in(status, b"<html>\xff not today"), "http://gateway")
    assert type(said) is kind
    assert "not today" in str(said)
