"""One migrated database for a whole test process, emptied between tests, with a clock that tests
can move."""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import count

import psycopg

from tenure.stores.postgres import PostgresStore
from tenure.testing.clock import ManualClock
from tests.postgres.server import Server

_TABLES = (
    "runs",
    "run_specs",
    "run_labels",
    "definitions",
    "steps",
    "tasks",
    "journal",
    "deliveries",
    "log_chunks",
    "pruned",
    "workers",
    "tokens",
)
_EMPTY = "; ".join(f"delete from tenure.{table}" for table in _TABLES)
_SWEEP = "vacuum " + ", ".join(f"tenure.{table}" for table in _TABLES)
_TEST_CLOCK = """
create table tenure.test_clock (at timestamptz not null);
insert into tenure.test_clock values (clock_timestamp());
create or replace function tenure.clock() returns timestamptz language sql volatile
  as $$ select at from tenure.test_clock $$
"""


async def migrated(url: str) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()


class TestDatabase:
    __test__ = False

    def __init__(self, server: Server, name: str = "shared", *, clock_stands: bool = True) -> None:
        server.execute(f"create database {name}")
        self._server = server
        self._name = name
        self.url = server.url(name)
        asyncio.run(migrated(self.url))
        self._connection = psycopg.connect(self.url, autocommit=True)
        if clock_stands:
            self._connection.execute(_TEST_CLOCK)
        self._emptied = count(1)

    def url_through(self, port: int) -> str:
        return self._server.url(self._name, port)

    def empty(self) -> None:
        """Deleting is quicker than truncating; now and then what was deleted is swept up."""
        self._connection.execute(_EMPTY)
        if next(self._emptied) % 50 == 0:
            self._connection.execute(_SWEEP)

    def set_clock(self, at: datetime) -> None:
        self._connection.execute("update tenure.test_clock set at = %s", (at,))

    def close(self) -> None:
        self._connection.close()


class ServersClock(ManualClock):
    """The server's clock in the hands of a test. There is one, not two: nobody sets the wall clock
    apart from the time that passes, and a client's machine that boots again is no matter."""

    def __init__(self, database: TestDatabase) -> None:
        super().__init__()
        self.database = database
        database.set_clock(self.now())

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self.database.set_clock(self.now())

    def set_wall(self, wall: datetime) -> None:
        """Not with us."""

    def reboot(self) -> None:
        """Not with us."""
