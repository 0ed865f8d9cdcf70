"""Who may come through the gateway."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.tokens import Token
from tenure.stores import record_rows
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.watched import Row

_tokens = msgspec.json.Decoder(Token)


class Tokens:
    """What the server stamps has its own columns; the rest is as the token was given."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def add(self, token: Token) -> Token:
        async with self._connections.session(Purpose.WRITING) as session:
            if not await session.count("add_token", token.id, record_rows.text(token)):
                await session.confirm()  # sent again
            return _token(await session.one("token", token.id))

    async def all(self) -> list[Token]:
        async with self._connections.session(Purpose.READING) as session:
            return [_token(row) for row in await session.all("tokens")]

    async def revoke(self, token_id: str) -> Token | None:
        async with self._connections.session(Purpose.WRITING) as session:
            row = await session.first("revoke_token", token_id)
        return None if row is None else _token(row)


def _token(row: Row) -> Token:
    body, created_at, revoked_at = row
    return replace(decode(_tokens, body), created_at=created_at, revoked_at=revoked_at)
