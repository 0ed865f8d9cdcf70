"""Signatures, checked by those who would check them."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks

from tenure.notifiers.http.signing import secret_of, signature
from tenure.notifiers.http.target import UnusableTarget
from tests.notifiers.deliveries import KEY, SECRET
from tests.notifiers.verifying import by_resend

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


def test_the_reference_library_accepts_it(now: datetime) -> None:
    verified = standardwebhooks.Webhook(SECRET).verify(BODY, headers(now))
    assert verified == {"type": "run.failed", "message": "größer"}


def test_a_library_that_shares_no_code_with_it_accepts_it_too(now: datetime) -> None:
    assert by_resend(SECRET, BODY, headers(now)) == {"type": "run.failed", "message": "größer"}


def test_openssl_comes_to_the_same(now: datetime) -> None:
    """An implementation that shares nothing with the library that signs."""
    sent = headers(now)
    signed = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode() + BODY
    command = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{KEY.hex()}"]
    done = subprocess.run([*command, "-binary"], input=signed, capture_output=True, check=True)
    version, _, code = sent["webhook-signature"].partition(",")
    assert (version, b64decode(code)) == ("v1", done.stdout)


@pytest.mark.parametrize(
    "changed",
    [
        {"body": BODY + b" "},
        {"secret": "whsec_" + b64encode(b"another thirty-two bytes, unknown").decode()},
    ],
)
def test_what_was_tampered_with_is_refused(now: datetime, changed: dict[str, object]) -> None:
    sent = headers(now, **changed)  # type: ignore[arg-type]
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(BODY, sent)
    with pytest.raises(ValueError, match="no matching signature"):
        by_resend(SECRET, BODY, sent)


def test_an_old_one_is_refused(now: datetime) -> None:
    with pytest.raises(standardwebhooks.WebhookVerificationError, match="too old"):
        standardwebhooks.Webhook(SECRET).verify(BODY, headers(now - timedelta(minutes=6)))


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
    [
        "",
        "PATH",
        "AWS_SECRET_ACCESS_KEY",
        "TENURE_GATEWAY_TOKEN",
        "TENURE_HOOK",
        "TENURE_HOOK_",
        "tenure_hook_shop",
        "TENURE_HOOK_SHOP\n",
        "TENURE_HOOK_Ä",
        "X_TENURE_HOOK_SHOP",
    ],
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
