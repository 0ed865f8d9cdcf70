"""Who may come through the gateway."""

from __future__ import annotations

import apsw
import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.tokens import Token
from tenure.stores import record_rows
from tenure.stores.lease_clock import LeaseClock
from tenure.stores.sqlite.database import transaction
from tenure.stores.sqlite.statements import Statements

_tokens = msgspec.json.Decoder(Token)


class Tokens:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._connection = connection
        self._sql = Statements(connection)
        self._clock = clock

    def add(self, token: Token) -> Token:
        with transaction(self._connection):
            new = record_rows.text(replace(token, created_at=self._clock.read().now))
            self._sql.do("add_token", token.id, new)
            return decode(_tokens, self._sql.one("token", token.id)[0])

    def all(self) -> list[Token]:
        return [decode(_tokens, body) for (body,) in self._sql.all("tokens")]

    def revoke(self, token_id: str) -> Token | None:
        with transaction(self._connection):
            row = self._sql.first("token", token_id)
            if row is None:
                return None
            token = decode(_tokens, row[0])
            if token.revoked_at is None:
                token = replace(token, revoked_at=self._clock.read().now)
                self._sql.do("change_token", record_rows.text(token), token_id)
            return token
