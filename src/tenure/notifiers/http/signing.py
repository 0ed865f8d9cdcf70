"""Signatures by Standard Webhooks. A target names the environment variable with its secret."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache

from standardwebhooks import Webhook

from tenure.notifiers.http.target import NotFromHere, UnusableTarget
from tenure.workflow.callbacks import KEY_PREFIX, fault_of_secret_env

_MIN_SECRET_BYTES = 24
"""Required by the specification."""


def secret_of(variable: str, environ: Mapping[str, str]) -> str:
    """``UnusableTarget`` names the variable, never its value; ``NotFromHere`` if only this process
    lacks the secret."""
    broken = fault_of_secret_env(variable)
    if broken is not None:
        raise UnusableTarget(f"the secret_env {broken.message}; {broken.hint}")
    secret = environ.get(variable, "").strip()
    if not secret:
        raise NotFromHere(
            f"the environment variable {variable} is not set where callbacks are sent; set it to "
            "the target's signing secret"
        )
    if not _is_key(secret):
        raise NotFromHere(
            f"the environment variable {variable} holds no signing secret: that is {KEY_PREFIX} "
            f"and at least {_MIN_SECRET_BYTES} random bytes in base64"
        )
    return secret


def signature(secret: str, delivery_id: str, at: datetime, body: bytes) -> str:
    """``at`` is an aware UTC time."""
    return _webhook(secret).sign(delivery_id, at, body.decode())


def bare(secret: str) -> str:
    """Its base64 alone, without the prefix."""
    return secret.removeprefix(KEY_PREFIX)


@lru_cache
def _webhook(secret: str) -> Webhook:
    return Webhook(secret)


@lru_cache
def _is_key(secret: str) -> bool:
    """The library ignores invalid base64, which would leave a weaker key."""
    text = bare(secret).rstrip("=")
    try:
        return len(b64decode(text + "=" * (-len(text) % 4), validate=True)) >= _MIN_SECRET_BYTES
    except ValueError:
        return False
