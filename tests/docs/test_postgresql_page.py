"""The page about PostgreSQL tells of every table and every number there is."""

from __future__ import annotations

import re
from pathlib import Path

from tenure.stores.postgres.pools import LOOK_EVERY_S
from tenure.stores.postgres.schema import migrations

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "postgresql.md").read_text()


def test_every_table_is_told_of_and_no_other() -> None:
    made = {
        name for _, text in migrations() for name in re.findall(r"create table tenure\.(\w+)", text)
    }
    rows = PAGE.partition("| table | a row is |")[2].partition("\n\n")[0].splitlines()[2:]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert told == made | {"migrations"}


def test_numbers_of_connections_are_those_that_are_counted() -> None:
    """Counted in ``tests/postgres/test_connection_count.py``."""
    found = re.findall(r"^\| ([^|]+) \| `2 × connections \+ (\d)` \| (\d) \|", PAGE, re.MULTILINE)
    assert [
        (process.split(",")[0].strip("`"), int(more), int(all_)) for process, more, all_ in found
    ] == [
        ("worker", 5, 9),
        ("tenure run", 4, 8),
        ("gateway", 3, 7),
    ]


def test_how_often_the_schema_is_looked_at() -> None:
    assert f"every {LOOK_EVERY_S:g} seconds while it uses the store" in PAGE
