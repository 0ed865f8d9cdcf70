"""What the planner makes of a statement, and what is read when that is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from tenure.stores.postgres.statements import SQL
from tests.postgres.asked import Asked

Node = dict[str, Any]
ROWS_OF_FEW = {
    "runs_by_owner",  # runs that somebody works at
    "runs_unapproved",  # that wait for people
    "runs_orphaned",  # that nobody works at any more, until that is noticed
    "runs_to_cancel",
}
"""Indexes that may be read as a whole, however long the history."""
_INDEX_SCANS = {"Index Scan", "Index Only Scan", "Bitmap Index Scan"}
_BOUNDED_BY = {"Limit", "LockRows", "Subquery Scan"}
"""What hands on a row as soon as it gets one, and passes the limit down."""


def settings_of_prepared(connection: psycopg.Connection) -> None:
    """Of connections that keep their plans."""
    cursor = psycopg.RawCursor(connection)
    cursor.execute(SQL["for_prepared_statements"], [connection.info.backend_pid])
    assert cursor.rowcount == 1


def settings_of_unprepared(connection: psycopg.Connection, carefully: bool) -> None:
    """Of connections that a pooler may stand behind: each call is planned with its values, and with
    the sizes that tables have at that moment."""
    connection.execute("set plan_cache_mode = force_custom_plan")
    connection.execute("set enable_seqscan = on")
    if carefully:
        connection.execute(SQL["carefully"].replace("true", "false"))


def generic_plan(connection: psycopg.Connection, statement: str) -> Node:
    """Made without values."""
    cursor = psycopg.ClientCursor(connection)
    return _plan(cursor.execute("explain (generic_plan, format json) " + statement))


def keep_plans(connection: psycopg.Connection, statements: dict[str, Asked]) -> None:
    """As of now: each is asked once, and keeps its plan until it is asked again."""
    settings_of_prepared(connection)
    for name, asked in statements.items():
        prepare(connection, name, asked)
        done(connection, name, asked)


def prepare(connection: psycopg.Connection, name: str, asked: Asked) -> None:
    cursor = psycopg.ClientCursor(connection)
    cursor.execute(sql.SQL("prepare {} as ").format(sql.Identifier(name)) + sql.SQL(asked.sql))


def done(connection: psycopg.Connection, name: str, asked: Asked) -> Node:
    """What was really done, and then undone."""
    values = sql.SQL(", ").join(map(sql.Literal, asked.values))
    call = sql.Identifier(name) + (sql.SQL("({})").format(values) if asked.values else sql.SQL(""))
    explain = sql.SQL("explain (analyze, buffers, timing off, format json) execute {}")
    with connection.transaction(force_rollback=True):
        return _plan(psycopg.ClientCursor(connection).execute(explain.format(call)))


def _plan(cursor: psycopg.Cursor[Any]) -> Node:
    found = cursor.fetchone()
    assert found is not None
    plan: Node = found[0][0]["Plan"]
    return plan


def rows_read(plan: Node) -> int:
    """Also those that were looked at and left."""
    return round(sum(_rows_of(node) for node, _ in scans(plan)))


def _rows_of(node: Node) -> float:
    left = sum(node.get(f"Rows Removed by {reason}", 0) for reason in ("Filter", "Index Recheck"))
    return float(node["Actual Loops"] * (node["Actual Rows"] + left))


def blocks_read(plan: Node) -> int:
    """Also those that were at hand. (A scan may look at a whole index for few rows.)"""
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def reads_everything(plan: Node) -> bool:
    return any(
        node["Node Type"] == "Seq Scan" or _reads_a_whole_index(node, above)
        for node, above in scans(plan)
    )


def _reads_a_whole_index(node: Node, above: list[Node]) -> bool:
    if "Index Cond" in node or node["Index Name"] in ROWS_OF_FEW:
        return False
    return "Filter" in node or not _is_bounded(above)


def _is_bounded(above: list[Node]) -> bool:
    for node in reversed(above):
        if node["Node Type"] == "Limit":
            return True
        if node["Node Type"] not in _BOUNDED_BY or "Filter" in node:
            return False
    return False


def scans(plan: Node, above: tuple[Node, ...] = ()) -> Iterator[tuple[Node, list[Node]]]:
    """Those that read tables or indexes, each with the nodes above it."""
    if plan["Node Type"] in {"Seq Scan", *_INDEX_SCANS}:
        yield plan, list(above)
    for part in plan.get("Plans", ()):
        yield from scans(part, (*above, plan))
