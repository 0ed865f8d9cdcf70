"""Tokens for the gateway: role, queues, expiry and digest.

A token reads ``tenure_<id>_<secret>``. Its secret is shown once; a digest is stored. The secret is
long and random, so a fast digest is enough: it cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

PREFIX = "tenure_"
_SECRET_BYTES = 32


class Role(StrEnum):
    VIEWER = "viewer"
    """Reads."""
    OPERATOR = "operator"
    """Also submits, and uses the operator verbs."""
    WORKER = "worker"
    """Reads, claims and executes."""
    ADMIN = "admin"
    """Everything."""


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored token. ``name`` is how journals call its bearer."""

    id: str
    name: str
    role: Role
    digest: bytes
    queues: tuple[str, ...] | None = None
    """Queues whose runs it may see and touch; ``None``: all."""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def written(token_id: str, secret: str) -> str:
    """The token as its bearer sends it."""
    return f"{PREFIX}{token_id}_{secret}"


def bearer_of(text: str, known: Sequence[Token] | dict[str, Token]) -> Token | None:
    """The token that ``text`` belongs to, expired and revoked ones included; ``None`` if unknown.
    Takes the same time for known and unknown ones."""
    by_id = known if isinstance(known, dict) else {token.id: token for token in known}
    token_id, _, secret = text.removeprefix(PREFIX).partition("_")
    token = by_id.get(token_id) if text.startswith(PREFIX) else None
    kept = token.digest if token is not None else bytes(_SECRET_BYTES)
    return token if hmac.compare_digest(kept, digest_of(secret)) else None
