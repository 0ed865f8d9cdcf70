"""Stores that keep tokens, and how a token is shown: never with its digest."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tenure.model.access import Role, Token
from tenure.model.errors import NotSupported, TenureError
from tenure.ports.run_store import RunStateStore
from tenure.ports.tokens import TokenStore


class NoSuchToken(TenureError, LookupError):
    """No token has this id or name."""


class ShownToken(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    role: Role
    queues: tuple[str, ...] | None
    state: str
    """``valid``, ``expired`` or ``revoked``."""
    created_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


class NewToken(ShownToken, frozen=True, kw_only=True):
    token: str
    """Shown this once."""


def tokens_of(store: RunStateStore) -> TokenStore:
    if isinstance(store, TokenStore):
        return store
    raise keeps_no_tokens(type(store).__name__)


def keeps_no_tokens(kind: str) -> NotSupported:
    return NotSupported(f"{kind} keeps no tokens: its gateway serves 127.0.0.1 only")


def state_of(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.is_valid(now) else "expired"


def shown(token: Token, now: datetime) -> ShownToken:
    return ShownToken(
        id=token.id,
        name=token.name,
        role=token.role,
        queues=token.queues,
        state=state_of(token, now),
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )
