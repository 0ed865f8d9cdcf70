"""Who may come through the gateway."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.tokens import Token
from tenure.stores.memory.state import MemoryState


class MemoryTokens:
    """``TokenStore``. Tokens are frozen through and through: none needs to be copied."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._tokens: dict[str, Token] = {}

    async def add_token(self, token: Token) -> Token:
        with self._state.lock:
            new = replace(token, created_at=self._state.clock.now())
            return self._tokens.setdefault(token.id, new)

    async def list_tokens(self) -> list[Token]:
        with self._state.lock:
            return list(self._tokens.values())

    async def revoke_token(self, token_id: str) -> Token | None:
        with self._state.lock:
            token = self._tokens.get(token_id)
            if token is not None and token.revoked_at is None:
                token = self._tokens[token_id] = replace(token, revoked_at=self._state.clock.now())
            return token
