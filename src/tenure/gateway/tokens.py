"""Tokens as a gateway knows them: a copy of the store's list, never older than a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from math import inf

from tenure.gateway.roles import Caller
from tenure.model.access import Token, bearer_of
from tenure.ports.run_store import RunStateStore
from tenure.ports.tokens import TokenStore

FRESH = 1.0
"""Seconds for which the list is trusted: so soon a revoked token is refused everywhere."""


class TokenBook:
    """A store that does not answer is an error for who asks: to let in whoever was let in before
    would let in whoever was revoked since."""

    def __init__(
        self, store: RunStateStore, now: Callable[[], datetime], clock: Callable[[], float]
    ) -> None:
        self._store = store if isinstance(store, TokenStore) else None
        self._now = now
        self._clock = clock
        self._tokens: dict[str, Token] = {}
        self._read_at = -inf
        self._reading = asyncio.Lock()

    async def has_any(self) -> bool:
        """Also if all are expired or revoked: then nobody gets in, rather than everybody."""
        return bool(await self._known())

    async def bearer(self, text: str, *, anew: bool = False) -> Caller | None:
        """``anew``: as the store has it now, for a token that was made a moment ago, perhaps."""
        token = bearer_of(text, await self._known(0.0 if anew else FRESH))
        if token is None or not token.is_valid(self._now()):
            return None
        queues = None if token.queues is None else frozenset(token.queues)
        return Caller(token.name, token.role, queues, token.id)

    async def _known(self, fresh: float = FRESH) -> dict[str, Token]:
        """As they were ``fresh`` seconds ago, or later. Those who wait at once read once."""
        since = self._clock() - fresh
        if self._store is None or self._read_at >= since:
            return self._tokens
        async with self._reading:
            if self._read_at < since:
                asked_at = self._clock()
                found = await self._store.list_tokens()
                self._tokens = {token.id: token for token in found}
                self._read_at = asked_at
        return self._tokens
