"""What the tests of plans take for granted: statements that need it are only ever asked in a
transaction that does without sequential scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tenure.model.outbox import Delivered
from tenure.model.status import DeliveryState
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.line import Line
from tenure.stores.postgres.session import Session
from tenure.stores.postgres.statements import SQL
from tenure.testing.contracts.acts import claim, create, start_first_step
from tenure.testing.factories import HOOK
from tests.postgres.asked import FILTERS, STATEMENTS
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow

NEED_IT = {asked.sql: name for name, asked in STATEMENTS.items() if asked.carefully}
NAMES = {sql: name for name, sql in SQL.items()}


class Watching:
    """Of each connection: is a transaction open, and was it told to be careful?"""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.careful: set[int] = set()
        self.seen: set[str] = set()
        self.careless: set[str] = set()

    def asked(self, connection: int, sql: str) -> None:
        match NAMES.get(sql):
            case "begin":
                self.open.add(connection)
                self.careful.discard(connection)
            case "commit":
                self.open.discard(connection)
                self.careful.discard(connection)
            case "carefully":
                self.careful.add(connection)
            case _:
                if sql in NEED_IT:
                    self.seen.add(NEED_IT[sql])
                    if connection not in self.careful:
                        self.careless.add(NEED_IT[sql])
                if connection not in self.open:
                    self.careful.discard(connection)


async def test_statements_that_need_care_get_it(
    postgres_database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching, count, send = Watching(), Session.count, Line._send

    async def counted(session: Session, name: str, *values: Any) -> Any:
        watching.asked(id(session.connection), SQL[name])
        return await count(session, name, *values)

    def sent(line: Line, sql: str, values: Sequence[Any]) -> Any:
        watching.asked(id(line), sql)
        return send(line, sql, values)

    monkeypatch.setattr(Session, "count", counted)
    monkeypatch.setattr(Line, "_send", sent)
    async with PostgresStore(postgres_database.url) as store:
        run = await create(store, callbacks=(HOOK,))
        await start_first_step(store, await claim(store, run.run_id, "worker-1"))
        for delivery in await store.claim_deliveries("token-1", limit=5):
            await store.settle_delivery(delivery.id, "token-1", Delivered())
        await store.list_runs(FILTERS["status"])
        await store.list_deliveries(state=DeliveryState.DEAD)
        await store.take_census(most=10)
        await store.read_changes(None, limit=10)
        await store.list_owners()
        await store.prune_runs(older_than=3600)
    assert watching.careless == set()
    looked_at = {
        "lock_runs",
        "put_deliveries",
        "census",
        "newest: status",
        "deliveries: waiting",  # (the same for every state)
    }
    assert looked_at <= watching.seen
