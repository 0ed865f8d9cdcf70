"""Who may come through the gateway."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tenure.model.access import Token


@runtime_checkable
class TokenStore(Protocol):
    """Without it there are no tokens, and a gateway serves its own machine only.

    Kept where runs are kept: all gateways of a store know the same tokens, and one that is revoked
    is refused by all of them.
    """

    async def add_token(self, token: Token) -> Token:
        """As it is kept, with ``created_at`` by the store's clock. An id that is there already
        keeps the token it has, and that one is returned."""
        ...

    async def list_tokens(self) -> list[Token]:
        """All, also those that are expired or revoked, in the order in which they were added."""
        ...

    async def revoke_token(self, token_id: str) -> Token | None:
        """Whoever lists tokens from now on finds it revoked; one that was stays as it is.
        ``None``: there is no such token."""
        ...
