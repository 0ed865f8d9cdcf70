"""Callbacks that wait, inside one transaction of the writer's thread. Settling is a file apart."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import apsw
import msgspec

from tenure.model.codec import decode
from tenure.model.errors import DeliveryNotFound
from tenure.model.outbox import Delivery, requeue
from tenure.model.status import DeliveryState
from tenure.stores import record_rows
from tenure.stores.lease_clock import Instant, LeaseClock
from tenure.stores.sqlite.claimed import Claimed
from tenure.stores.sqlite.database import transaction
from tenure.stores.sqlite.delivery_rows import Kept, columns_of, deliveries_of
from tenure.stores.sqlite.statements import DELIVERY, DELIVERY_TABLES, Statements

_ORIGINS_AT_ONCE = 500
_RESTS_AT_ONCE = 1000
"""More than a relay can claim, few enough to be done with at once: whoever writes waits for it."""
_names = msgspec.json.Decoder(list[str])


class Outboxing:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._connection = connection
        self._sql = Statements(connection)
        self._clock = clock
        self.claimed = Claimed()
        self._next_origin = ""

    def claim(
        self,
        token: str,
        limit: int,
        seconds: float,
        per_origin: int | None,
        except_origins: Collection[str],
        only: Collection[str] | None,
    ) -> list[Delivery]:
        with transaction(self._connection):
            instant = self._clock.read()
            return self.claim_at(instant, token, limit, seconds, per_origin, except_origins, only)

    def claim_at(
        self,
        instant: Instant,
        token: str,
        limit: int,
        seconds: float,
        per_origin: int | None,
        except_origins: Collection[str],
        only: Collection[str] | None,
    ) -> list[Delivery]:
        """Within somebody's transaction."""
        until = instant.until(seconds)
        self._sql.do("end_rests", *instant.boot, _RESTS_AT_ONCE)
        if not self._sql.count("renew_held_deliveries", *until[:2], token):
            limit = max(limit, 0)
            most = limit if per_origin is None else max(per_origin, 0)
            hold = (token, *until[:2])
            if only is not None:
                names, left_out = (record_rows.text(list(some)) for some in (only, except_origins))
                self._sql.do("hold_named_deliveries", *hold, names, most, limit, left_out)
            else:
                origins = self._origins(except_origins)
                if not origins:
                    return []
                self._sql.do("hold_due_deliveries", *hold, record_rows.text(origins), most, limit)
        (text,) = self._sql.one("held_deliveries", token)
        held = deliveries_of(text)
        self.claimed.remember(held)
        return [kept.delivery for kept in held]

    def _origins(self, except_origins: Collection[str]) -> list[str]:
        """Where something is due, without those left out. These may fill any number of looks; each
        look begins with the last one of the look before."""
        left_out = frozenset(except_origins)
        for _ in range(1 + len(left_out) // (_ORIGINS_AT_ONCE - 1)):
            wanted = [origin for origin in self._some_origins() if origin not in left_out]
            if wanted:
                return wanted
        return []

    def _some_origins(self) -> list[str]:
        """Where something is due: all of them or, if they are very many, those whose turn it is to
        be looked at. Everybody who writes to this database waits meanwhile."""
        found = self._origins_from(self._next_origin)
        if self._next_origin and len(found) < _ORIGINS_AT_ONCE:
            found = list(dict.fromkeys([*found, *self._origins_from("")]))[:_ORIGINS_AT_ONCE]
        self._next_origin = found[-1] if len(found) == _ORIGINS_AT_ONCE else ""
        return found

    def _origins_from(self, first: str) -> list[str]:
        (text,) = self._sql.one("origins_due", first, _ORIGINS_AT_ONCE)
        return decode(_names, text)

    def requeue(self, delivery_id: str) -> Delivery:
        with transaction(self._connection):
            kept = self._find(delivery_id)
            again = requeue(kept.delivery, self._clock.now())
            if again is not kept.delivery:
                self._sql.do("put_deliveries", record_rows.text([columns_of(kept, again)]))
                self._sql.do("block_all_but_head", kept.seq, again.target.name)
            return again

    def get(self, delivery_id: str) -> Delivery:
        return self._find(delivery_id).delivery

    def page(
        self, state: DeliveryState | None, run_id: str | None, before: int, limit: int
    ) -> list[tuple[int, Delivery]]:
        conditions = "d.number < ?"
        values: list[Any] = [before]
        if run_id is not None:
            row = self._sql.first("seq_of_run", run_id)
            if row is None:
                return []
            conditions += " and d.seq = ?"
            values.append(row[0])
        if state is not None:
            conditions += " and d.state = ?"
            values.append(state.value)
        ((found,),) = self._sql.built(
            f"select json_group_array({DELIVERY} order by d.number desc) from {DELIVERY_TABLES} "
            f"where d.number in (select d.number from deliveries d where {conditions} "
            "order by d.number desc limit ?)",
            (*values, limit),
        )
        return [(kept.number, kept.delivery) for kept in deliveries_of(found)]

    def _find(self, delivery_id: str) -> Kept:
        (found,) = self._sql.one("deliveries_by_id", json.dumps([delivery_id]))
        for kept in deliveries_of(found):
            return kept
        raise DeliveryNotFound(delivery_id)
