"""Signing secrets; the signatures are checked in test_sender, by two libraries."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime

import pytest

from tenure.notifiers.http.signing import secret_of, signature
from tenure.notifiers.http.target import UnusableTarget
from tests.notifiers.deliveries import KEY, SECRET

BODY = '{"type":"run.failed","message":"größer"}'.encode()


def headers(at: datetime, *, body: bytes = BODY, secret: str = SECRET) -> dict[str, str]:
    return {
        "webhook-id": "delivery-000007",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature(secret, "delivery-000007", at, body),
    }


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize(
    "spelling",
    [SECRET, SECRET.removeprefix("whsec_"), SECRET.rstrip("="), f"  {SECRET}\n"],
    ids=["whole", "bare", "unpadded", "with space around it"],
)
def test_spellings_of_one_secret(spelling: str, now: datetime) -> None:
    secret = secret_of("TENURE_HOOK_SHOP", {"TENURE_HOOK_SHOP": spelling})
    assert headers(now, secret=secret) == headers(now)


@pytest.mark.parametrize(
    "variable",
    ["", "PATH", "TENURE_GATEWAY_TOKEN", "TENURE_HOOK_", "tenure_hook_shop", "TENURE_HOOK_SHOP\n"],
)
def test_other_variables_are_none_of_a_submitters_business(variable: str) -> None:
    """Not even whether they exist."""
    refusals = []
    for environ in ({}, {variable: SECRET}):
        with pytest.raises(UnusableTarget, match="TENURE_HOOK_") as refused:
            secret_of(variable, environ)
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize("environ", [{}, {"TENURE_HOOK_SHOP": ""}, {"TENURE_HOOK_SHOP": " \n"}])
def test_a_missing_secret_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(UnusableTarget, match="TENURE_HOOK_SHOP is not set"):
        secret_of("TENURE_HOOK_SHOP", environ)


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2",
        "correct horse battery staple, and then some more of it",
        "whsec_",
        "whsec_" + b64encode(KEY[:23]).decode(),
        "whsec_" + urlsafe_b64encode(b"\xff" * 32).decode(),
        "whsk_" + b64encode(KEY).decode(),
        SECRET + "!",
        SECRET[:10] + "=" + SECRET[10:],
        SECRET + "é",
    ],
)
def test_what_is_no_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(UnusableTarget, match="TENURE_HOOK_SHOP holds no signing secret") as refused:
        secret_of("TENURE_HOOK_SHOP", {"TENURE_HOOK_SHOP": secret})
    error = refused.value
    assert secret == "whsec_" or secret not in f"{error} {error!r} {error.__cause__!r}"
