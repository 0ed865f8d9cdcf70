"""How SQLite would answer each statement: from an index range, however long the history."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from tenure.model.query import RunFilter
from tenure.model.status import DeliveryState, RunStatus
from tenure.stores.sqlite import SQLiteStore
from tenure.stores.sqlite.rows import SQL, load
from tenure.testing.contracts.acts import create
from tenure.testing.factories import (
    HOOK,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    async with await SQLiteStore.open(path) as store:
        yield store


def plan_of(path: Path, sql: str) -> list[str]:
    connection = apsw.Connection(str(path))
    return [str(row[3]) for row in connection.execute(f"explain query plan {sql}", no_values(sql))]


def no_values(sql: str) -> tuple[None, ...]:
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    return (None,) * (max(numbered) if numbered else sql.count("?"))


# Statements


def test_every_statement_has_a_name_and_prepares(tmp_path: Path) -> None:
    assert load("-- name: one\n-- why\nselect 1\n\n-- name: two\nselect 2") == {
        "one": "select 1",
        "two": "select 2",
    }
    asyncio.run(_create(tmp_path / "runs.db"))
    connection = apsw.Connection(str(tmp_path / "runs.db"))
    for name, statement in SQL.items():
        explained = connection.execute(f"explain {statement}", no_values(statement))
        assert explained.fetchall(), name


async def _create(path: Path) -> None:
    await (await SQLiteStore.open(path)).close()


RUNNING, ENDED = frozenset({RunStatus.RUNNING}), frozenset({RunStatus.FAILED, RunStatus.SUCCESS})


BY_STATUS = "COVERING INDEX runs_by_status (status=? AND seq<?)"


BY_WORKFLOW = "COVERING INDEX runs_by_workflow (workflow_name=? AND status=? AND seq<?)"


BY_QUEUE = "COVERING INDEX runs_by_queue (queue=? AND status=? AND seq<?)"


BY_LABEL = "PRIMARY KEY (key=? AND value=? AND seq<?)"


BY_OWNER = "INDEX runs_by_owner (owner_id=?)"


HELD = "INDEX runs_by_owner (owner_id>?)"


UNAPPROVED = "INDEX runs_unapproved (seq<?)"


@pytest.mark.parametrize(
    ("where", "driver"),
    [
        (RunFilter(), "INTEGER PRIMARY KEY (rowid<?)"),
        (RunFilter(statuses=RUNNING), BY_STATUS),
        (RunFilter(statuses=ENDED), BY_STATUS),
        (RunFilter(workflow_name="deploy"), BY_WORKFLOW),
        (RunFilter(workflow_name="deploy", statuses=ENDED), BY_WORKFLOW),
        (RunFilter(queue="gpu"), BY_QUEUE),
        (RunFilter(queue="gpu", statuses=ENDED), BY_QUEUE),
        (RunFilter(labels={"team": "web", "env": "prod"}), BY_LABEL),
        (RunFilter(labels={"team": "web"}, queue="gpu"), BY_LABEL),
        (RunFilter(owner_id="owner-a"), BY_OWNER),
        (RunFilter(owner_id="owner-a", statuses=ENDED), BY_OWNER),
        (RunFilter(owner_id="owner-a", queue="gpu", workflow_name="deploy"), BY_OWNER),
        (RunFilter(owner_id="owner-a", labels={"team": "web"}), BY_OWNER),
        (RunFilter(held=True), HELD),
        (RunFilter(held=True, statuses=RUNNING, labels={"team": "web"}), HELD),
        (RunFilter(unapproved=True), UNAPPROVED),
        (RunFilter(unapproved=True, statuses=ENDED, queue="gpu"), UNAPPROVED),
    ],
)
async def test_lists_read_index_ranges_not_tables(
    tmp_path: Path, where: RunFilter, driver: str
) -> None:
    """A page must cost the same however long the history: the range is the one that is named, in
    the order of the page. (Runs with an owner are sorted; there are never many.)"""
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        asked: list[str] = []
        connection = store._reader.connection

        def note(_: object, sql: str, values: object) -> bool:
            if sql.startswith("select"):
                asked.append(sql)
            return True

        connection.exec_trace = note
        await store.list_runs(where)
        connection.exec_trace = None
    (sql,) = asked
    plan = plan_of(store.path, sql)
    ranges = [step for step in plan if step.startswith(("SEARCH r ", "SEARCH d ", "SCAN r "))]
    assert ranges
    assert all(driver in step for step in ranges if "rowid=?" not in step), plan
    merged = len(where.statuses or RunStatus) > 1 and "(subquery" in str(plan)
    assert "TEMP B-TREE" not in str(plan) or merged or where.owner_id or where.held, plan


def test_counting_runs_reads_an_index_and_no_table(tmp_path: Path) -> None:
    asyncio.run(_create(tmp_path / "runs.db"))
    (counted,) = (s for s in plan_of(tmp_path / "runs.db", SQL["runs_by_status"]) if " r " in s)
    assert counted == "SEARCH r USING COVERING INDEX runs_by_status (status=?)"


def test_versions_of_many_runs_are_found_by_their_ids(tmp_path: Path) -> None:
    asyncio.run(_create(tmp_path / "runs.db"))
    plan = plan_of(tmp_path / "runs.db", SQL["versions_by_id"])
    assert plan == [
        "SCAN each VIRTUAL TABLE INDEX 1:",
        "SEARCH r USING INDEX sqlite_autoindex_runs_1 (run_id=?)",
    ]


def test_relays_look_at_what_is_due_and_at_nothing_else(tmp_path: Path) -> None:
    """However many callbacks wait for their turn, their next attempt or a busy relay."""
    asyncio.run(_create(tmp_path / "runs.db"))
    origins = plan_of(tmp_path / "runs.db", SQL["origins_due"])
    assert [step for step in origins if "deliveries" in step] == [
        "SEARCH deliveries USING INDEX deliveries_due (origin>?)",
        "SEARCH deliveries USING INDEX deliveries_due (origin>?)",
    ]
    due = plan_of(tmp_path / "runs.db", SQL["hold_due_deliveries"])
    assert [step for step in due if step.startswith("SEARCH")] == [
        "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH f USING INDEX deliveries_due (origin=?)",
        "SEARCH e USING INDEX deliveries_in_order (seq=? AND target=?)",
    ]
    assert not [step for step in due if step.startswith(("SCAN d", "SCAN e", "SCAN f"))]
    for name in ("renew_held_deliveries", "held_deliveries"):
        plan = plan_of(tmp_path / "runs.db", SQL[name])
        (held,) = [step for step in plan if "deliveries" in step]
        assert "INDEX deliveries_held (token=?)" in held
    rests = plan_of(tmp_path / "runs.db", SQL["end_rests"])
    ranges = [step for step in rests if step.startswith(("SEARCH", "SCAN")) and "rowid" not in step]
    assert len(ranges) == 3
    assert all("COVERING INDEX deliveries_resting (rest_boot" in step for step in ranges), rests


@pytest.mark.parametrize(
    ("name", "ranges"),
    [
        ("put_deliveries", ["deliveries USING INTEGER PRIMARY KEY (rowid=?)"]),
        (
            "unblock_heads",
            [
                "deliveries USING INTEGER PRIMARY KEY (rowid=?)",
                "deliveries USING COVERING INDEX deliveries_in_order (seq=? AND target=?)",
            ],
        ),
        (
            "hold_named_deliveries",
            [
                "deliveries USING INTEGER PRIMARY KEY (rowid=?)",
                "d USING INDEX sqlite_autoindex_deliveries_1 (id=?)",
            ],
        ),
        ("newest_dead_letter", ["d USING INDEX deliveries_dead (seq=? AND died_at>?)"]),
    ],
)
async def test_statements_look_at_nothing_else(
    store: SQLiteStore, name: str, ranges: list[str]
) -> None:
    """However many callbacks there are."""
    plan = plan_of(store.path, SQL[name])
    found = [step.removeprefix("SEARCH ") for step in plan if step.startswith(("SEARCH", "SCAN d"))]
    assert [step for step in found if step[0] == "d"] == ranges


@pytest.mark.parametrize(
    ("state", "of_run", "index"),
    [
        (None, False, "INTEGER PRIMARY KEY (rowid<?)"),
        (DeliveryState.DEAD, False, "COVERING INDEX deliveries_by_state (state=? AND number<?)"),
        (None, True, "COVERING INDEX deliveries_of_run (seq=? AND number<?)"),
        (DeliveryState.WAITING, True, "INDEX deliveries_of_run (seq=? AND number<?)"),
    ],
)
async def test_lists_of_deliveries_read_index_ranges_not_tables(
    store: SQLiteStore, state: DeliveryState | None, of_run: bool, index: str
) -> None:
    run = await create(store, callbacks=(HOOK,))
    asked: list[str] = []
    connection = store._reader.connection

    def note(_: object, sql: str, values: object) -> bool:
        asked.append(sql)
        return True

    connection.exec_trace = note
    await store.list_deliveries(state=state, run_id=run.run_id if of_run else None)
    connection.exec_trace = None
    plan = plan_of(store.path, next(sql for sql in asked if "json_group_array" in sql))
    looks = [step for step in plan if step.startswith(("SEARCH d ", "SCAN d"))]
    assert looks == ["SEARCH d USING INTEGER PRIMARY KEY (rowid=?)", f"SEARCH d USING {index}"]


# However long the history


async def test_candidates_are_found_by_their_end_in_order(path: Path, store: SQLiteStore) -> None:
    plan = plan_of(path, SQL["prunable"])
    assert plan[0] == "SEARCH r USING COVERING INDEX runs_ended (finished_at<?)"
    assert "deliveries_in_order (seq=?)" in plan[-1]
    assert "TEMP B-TREE" not in str(plan)


@pytest.mark.parametrize(
    "name", ["what_to_prune", *(name for name in SQL if name.startswith("delete_some"))]
)
async def test_removing_a_run_reads_no_other(path: Path, store: SQLiteStore, name: str) -> None:
    plan = plan_of(path, SQL[name])
    assert not [step for step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"]
    assert [step for step in plan if step.startswith("SEARCH")]


async def test_looking_for_other_users_of_a_definition_reads_an_index(
    path: Path, store: SQLiteStore
) -> None:
    plan = plan_of(path, SQL["delete_unused_definition"])
    assert any("run_specs_by_definition (definition_digest=?)" in step for step in plan), plan


def test_feed_is_read_by_number(path: Path, store: SQLiteStore) -> None:
    first, *rest = plan_of(path, SQL["changes_after"])
    assert first == "SEARCH j USING INTEGER PRIMARY KEY (rowid>?)"
    assert all("r USING INTEGER PRIMARY KEY" in step for step in rest)
