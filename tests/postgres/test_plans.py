"""No statement reads a whole table or a whole index, however long the history: not with a plan made
while tables were empty, not where the planner knows nothing about them, not where it knows all.

Connections that prepare keep one plan for each statement, made without its values, and do without
sequential scans (``for_prepared_statements``): theirs are the generic plans. All others plan each
call anew, with its values and with the size that a table has at that moment: for them to read an
empty table from end to end is right, and a generic plan of theirs does not exist. Of theirs is
measured what they read of tables that are large, or were small when they were analysed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from tenure.stores.postgres.statements import SQL
from tests.postgres.asked import MAY_READ_ALL, NO_PLAN, STATEMENTS, Asked
from tests.postgres.database import migrated
from tests.postgres.long_history import fill, fill_at_once, forget_statistics
from tests.postgres.plan import (
    Node,
    blocks_read,
    done,
    generic_plan,
    keep_plans,
    prepare,
    reads_everything,
    rows_read,
    settings_of_prepared,
    settings_of_unprepared,
)
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

SOME = 20_000
MILLION = 1_000_000
MOST_ROWS = 1_500
"""For a page of fifty, or the few that somebody works at."""
MOST_BLOCKS = 2_500
"""Less than there are in the smallest index of a million rows."""


@pytest.fixture
async def database(postgres_server: Server) -> AsyncIterator[str]:
    postgres_server.execute("drop database if exists plans with (force)")
    postgres_server.execute("create database plans")
    await migrated(postgres_server.url("plans"))
    yield postgres_server.url("plans")
    postgres_server.execute("drop database plans with (force)")


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
def test_plan_made_while_tables_are_empty_serves_when_they_are_not(
    connection: psycopg.Connection, analysed: bool
) -> None:
    if analysed:
        connection.execute("vacuum analyze")
    settings_of_prepared(connection)
    plans = {name: generic_plan(connection, asked.sql) for name, asked in STATEMENTS.items()}
    assert _reading_everything(plans) == set()
    keep_plans(connection, STATEMENTS)
    fill(connection, SOME)
    assert _reading_much(connection, STATEMENTS) == {}


def test_tables_that_have_grown_since_they_were_analysed(connection: psycopg.Connection) -> None:
    fill(connection, 1_000)
    connection.execute("analyze")
    fill(connection, SOME, first=1_001)
    _check(connection)


@pytest.mark.long
def test_million_rows(connection: psycopg.Connection) -> None:
    """In every table that grows."""
    fill_at_once(connection, MILLION)
    forget_statistics(connection)
    _check(connection)
    connection.execute("analyze")
    _check(connection)


@pytest.mark.long
def test_million_rows_after_a_vacuum(connection: psycopg.Connection) -> None:
    """Index entries alone may then answer, which makes other plans look cheap."""
    fill_at_once(connection, MILLION)
    connection.execute("vacuum analyze")
    _check(connection)


def test_whole_table_or_index_that_is_read_is_noticed(connection: psycopg.Connection) -> None:
    fill(connection, SOME)
    whole = {
        "a table": "select 1 from tenure.runs where detail::text = $1",
        "an index": "select 1 from tenure.runs where status = $1 order by seq limit 50",
        "a part": "select 1 from tenure.deliveries where state = 'waiting' and token = $1",
    }
    for name, sql in whole.items():
        plan = generic_plan(connection, sql)
        assert _reading_everything({name: plan}) == {name}
    sql = (
        "select 1 from tenure.deliveries where number > 0 and target = $1 order by number limit 50"
    )
    asked = Asked(sql, ("nowhere",), carefully=False)
    settings_of_prepared(connection)
    prepare(connection, "rows of others", asked)
    assert not _reading_everything({"rows of others": generic_plan(connection, sql)})
    assert _reading_much(connection, {"rows of others": asked})


def test_every_statement_is_looked_at_or_excused() -> None:
    assert set(SQL) - set(STATEMENTS) == NO_PLAN | MAY_READ_ALL


def _check(connection: psycopg.Connection) -> None:
    settings_of_prepared(connection)
    plans = {name: generic_plan(connection, asked.sql) for name, asked in STATEMENTS.items()}
    assert _reading_everything(plans) == set()
    connection.execute("deallocate all")
    for name, asked in STATEMENTS.items():
        prepare(connection, name, asked)
    assert _reading_much(connection, STATEMENTS) == {}
    for carefully in (False, True):
        settings_of_unprepared(connection, carefully)
        some = {name: each for name, each in STATEMENTS.items() if each.carefully == carefully}
        assert _reading_much(connection, some) == {}


def _reading_everything(plans: dict[str, Node]) -> set[str]:
    return {name for name, plan in plans.items() if reads_everything(plan)}


def _reading_much(
    connection: psycopg.Connection, statements: dict[str, Asked]
) -> dict[str, tuple[int, int]]:
    """How many rows and blocks those read that read more than they should."""
    found: dict[str, tuple[int, int]] = {}
    (waiting,) = connection.execute(
        "select count(*) from tenure.runs where readiness = 1"
    ).fetchone() or (0,)
    for name, asked in statements.items():
        plan = done(connection, name, asked)
        # What is runnable is looked for in claim order among all that wait for a worker.
        more = waiting if name.startswith("runnable") else 0
        rows, blocks = rows_read(plan), blocks_read(plan)
        if rows > MOST_ROWS + 3 * more or blocks > MOST_BLOCKS + 4 * more:
            found[name] = (rows, blocks)
    return found
