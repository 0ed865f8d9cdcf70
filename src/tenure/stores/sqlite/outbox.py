"""Callbacks that wait, inside one transaction of the writer's thread. Settling is a file apart."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import apsw

from tenure.model.errors import DeliveryNotFound
from tenure.model.outbox import Delivery, requeue
from tenure.model.status import DeliveryState
from tenure.stores.lease_clock import LeaseClock
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.database import transaction
from tenure.stores.sqlite.delivery_rows import columns_of, delivery_of
from tenure.stores.sqlite.statements import DELIVERY_COLUMNS, Statements


class Outboxing:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._connection = connection
        self._sql = Statements(connection)
        self._clock = clock

    def claim(
        self,
        token: str,
        limit: int,
        seconds: float,
        per_origin: int | None = None,
        except_origins: Collection[str] = (),
    ) -> list[Delivery]:
        with transaction(self._connection):
            instant = self._clock.read()
            until = instant.until(seconds)
            self._sql.do("end_rests", *instant.boot)
            numbers = self._sql.all("deliveries_under_token", token)
            if not numbers:
                limit = max(limit, 0)
                most = limit if per_origin is None else max(per_origin, 0)
                numbers = self._sql.all(
                    "due_deliveries", rows.text(list(except_origins)), most, limit
                )
            chosen = rows.text([number for (number,) in numbers])
            self._sql.do("hold_deliveries", token, until.boot_id, until.nanoseconds, chosen)
            return [delivery_of(row) for row in self._sql.all("deliveries_by_number", chosen)]

    def requeue(self, delivery_id: str) -> Delivery:
        with transaction(self._connection):
            delivery, seq = self._find(delivery_id)
            again = requeue(delivery, self._clock.now())
            if again is not delivery:
                self._sql.do("put_delivery", *columns_of(again))
                self._sql.do("block_all_but_head", seq, again.target.name)
            return again

    def page(
        self, state: DeliveryState | None, run_id: str | None, before: int, limit: int
    ) -> list[tuple[int, Delivery]]:
        conditions, values = "d.number < ?", [before]
        if run_id is not None:
            row = self._sql.first("seq_of_run", run_id)
            if row is None:
                return []
            conditions += " and d.seq = ?"
            values.append(row[0])
        bound: list[Any] = [*values]
        if state is not None:
            conditions += " and d.state = ?"
            bound.append(state.value)
        found = self._sql.built(
            f"select {DELIVERY_COLUMNS} where {conditions} order by d.number desc limit ?",
            (*bound, limit),
        )
        return [(row[-1], delivery_of(row)) for row in found]

    def _find(self, delivery_id: str) -> tuple[Delivery, int]:
        row = self._sql.first("delivery_by_id", delivery_id)
        if row is None:
            raise DeliveryNotFound(delivery_id)
        return delivery_of(row), row[-2]
