"""No statement reads a whole table: not on an empty one, not on one the planner knows nothing
about, not on a large one. Asked for generic plans, made without the values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import psycopg
import pytest

from tenure.model.query import RunFilter
from tenure.model.status import RunStatus
from tenure.stores.postgres.choosing import runnable_statement
from tenure.stores.postgres.listing import newest
from tenure.stores.postgres.statements import SQL
from tests.postgres.database import migrated
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

NO_PLAN = {
    "begin",
    "commit",
    "carefully",
    "for_prepared_statements",
    "clock",
    "listen",
    "listen_to_queues",
    "oldest_at_work",
    "announce",
}
MAY_READ_ALL = {
    "schema",  # a row per version of the schema
    "workers",  # a row per process
    "put_worker",
    "forget_silent_workers",
    "tokens",  # a row per token
    "token",
    "revoke_token",
    "pruned",  # empty but for a prune at work
    "unfinished_prunes",
    "changes_of_another_server",
    "adopt_runs",  # `tenure store migrate`
    "adopt_journal",
    "count_runs",  # `tenure store check`, which says that it takes a while
    "bytes_used",
    "runs_without_spec",
    "runs_without_journal",
    "specs_without_definition",
    "rows_without_run",
    "unused_definitions",
    "lock_all_unused_definitions",  # `tenure store migrate`
}
CAREFULLY = {
    "held_under_claim",
    "promote_parked",
    "pick_by_priority",
    "pick_by_age",
    "pick_abandoned",
    "changes_after",
    "owners",
    "runs_by_status",
    "census",
    "queue_lengths",
    "renew_held_deliveries",
    "lock_following",
    "hold_due_deliveries",
    "hold_named_deliveries",
    "put_deliveries",
    "unblock_heads",
    "block_all_but_head",
    "show_dead_letters",
    "lock_prunable",
    "hide_locked",
    "keep_run_of_delivery",
    "forget_pruned",
    "lock_unused_definitions",
    "delete_unused_definitions",
    *(name for name in SQL if name.startswith("delete_some")),
}
"""Always in a transaction that begins with ``carefully``."""
UNFINISHED = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
FILTERS = {
    "all": RunFilter(),
    "status": RunFilter(statuses=frozenset({RunStatus.FAILED, RunStatus.RUNNING})),
    "workflow": RunFilter(workflow_name="deploy"),
    "queue": RunFilter(queue="gpu"),
    "owner": RunFilter(owner_id="worker-1"),
    "held": RunFilter(held=True),
    "held, canceling": RunFilter(canceling=True),
    "owner, canceling": RunFilter(owner_id="worker-1", canceling=True),
    "held, and more": RunFilter(
        held=True, statuses=UNFINISHED, queue="gpu", workflow_name="deploy", labels={"team": "web"}
    ),
    "unapproved": RunFilter(unapproved=True),
    "unapproved, and more": RunFilter(
        unapproved=True, statuses=UNFINISHED, queue="gpu", labels={"team": "web"}
    ),
    "label": RunFilter(labels={"team": "web"}),
    "created": RunFilter(created_from=MOMENT, created_to=MOMENT),
    "everything": RunFilter(
        statuses=frozenset({RunStatus.FAILED}),
        workflow_name="deploy",
        queue="gpu",
        labels={"team": "web", "env": "prod"},
        created_from=MOMENT,
    ),
}
OF_HELD = {"runs_by_owner"}
FEW = {
    "newest: owner": OF_HELD,
    "newest: held": OF_HELD,
    "newest: held, canceling": OF_HELD,
    "newest: owner, canceling": OF_HELD,
    "newest: held, and more": OF_HELD,
    "owners": {*OF_HELD, "runs_orphaned"},
    "runs_by_status": {"runs_by_status", *OF_HELD},
    "newest: unapproved": {"runs_unapproved"},
    "newest: unapproved, and more": {"runs_unapproved"},
}
"""Asked for every few seconds: only by these indexes, whatever else is asked."""
STATEMENTS = {
    **{name: sql for name, sql in SQL.items() if name not in NO_PLAN | MAY_READ_ALL},
    **{f"newest: {name}": newest(where, 1, 50)[0] for name, where in FILTERS.items()},
    **{
        f"runnable: {name}": runnable_statement(where, None, 50)[0]
        for name, where in FILTERS.items()
    },
}
MANY = """
insert into tenure.runs (run_id, workflow_name, status, version, fence, owner_id, lease_expires_at,
  takeovers, takeovers_without_progress, recovery, queue, rank, ready_at, readiness, approved,
  created_at, finished_at, updated_at, counts)
select 'run-' || lpad(n::text, 8, '0'), 'deploy-' || n % 50,
  case when n % 10 = 0 then 'queued' when n % 100 = 1 then 'running' else 'success' end, 5, 1,
  case when n % 100 = 1 then 'worker-' || n % 20 end,
  case when n % 100 = 1 then now() end, 0, 0, 'resume', 'queue-' || n % 3, 0,
  now() + n * interval '1 second', case when n % 10 = 0 then 1 else 0 end, true,
  now() + n * interval '1 second',
  case when n % 10 > 1 then now() + n * interval '1 second' end, now(), '{}'
from generate_series(1, :runs) n;
insert into tenure.run_specs (seq, definition_digest, summary, plan)
select seq, 'digest-' || seq % 4000, '{}', '[]' from tenure.runs;
insert into tenure.run_labels (key, value, seq)
select 'team', 'team-' || seq % 9, seq from tenure.runs;
insert into tenure.definitions (digest, body)
select 'digest-' || n, '""' from generate_series(0, 4000) n;
insert into tenure.pruned (seq, definition_digest)
select n, 'digest-' || n from generate_series(1, 5000) n;
insert into tenure.journal (seq, version, at, fence, update_id, events)
select seq, v, now(), 1, 'update', '[]' from tenure.runs, generate_series(1, 5) v;
insert into tenure.steps (seq, step, body)
select seq, s, '{}' from tenure.runs, generate_series(0, 2) s;
insert into tenure.tasks (seq, step, host, item, body)
select seq, s, 'web1', -1, '{}' from tenure.runs, generate_series(0, 2) s;
insert into tenure.deliveries (id, seq, target, version, ordinal, origin, run_status, state,
  blocked, attempts, due_at, redelivery, event, died_at, token)
select 'd-' || seq, seq, 'hook', 5, 0, 'https://' || seq % 30, 'success',
  case when seq % 20 = 0 then 'waiting' else 'delivered' end, false, 1, now(), false, '{}',
  case when seq % 50 = 1 then now() end, case when seq % 200 = 0 then 'token-' || seq end
from tenure.runs;
insert into tenure.log_chunks (seq, step, host, item, attempt, stream, start, fence, data)
select seq, 0, 'web1', -1, 1, 'stdout', 0, 1, 'x' from tenure.runs;
"""


@pytest.fixture
async def database(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists plans with (force)")
    postgres_server.execute("create database plans")
    await migrated(postgres_server.url("plans"))
    return postgres_server.url("plans")


@pytest.mark.parametrize(
    ("runs", "analysed"),
    [
        pytest.param(0, False, id="empty"),
        pytest.param(20_000, False, id="not analysed"),
        pytest.param(20_000, True, id="analysed"),
        pytest.param(1_000_000, False, id="a million, not analysed", marks=pytest.mark.long),
        pytest.param(1_000_000, True, id="a million, analysed", marks=pytest.mark.long),
    ],
)
def test_no_statement_reads_a_whole_table(database: str, runs: int, analysed: bool) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        _fill(connection, runs)
        if analysed:
            connection.execute("analyze")
        # Prepared while a table is empty, used when it is not any more.
        connection.execute(SQL["for_prepared_statements"])
        assert _reading_whole_tables(connection, STATEMENTS) == {}
        assert _reading_indexes_of_many(connection) == {}
        if not runs:
            return  # to read an empty table whole, planned for this once, is no mistake
        connection.execute(SQL["carefully"].replace("true", "false"))
        careful = {name for name in STATEMENTS if _is_careful(name)}
        assert _reading_whole_tables(connection, careful) == {}
        connection.execute("set enable_seqscan = on")
        assert _reading_whole_tables(connection, STATEMENTS.keys() - careful) == {}


def test_whole_table_that_is_read_is_noticed(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        _fill(connection, 20_000)
        assert _whole_table(connection, "select count(*) from tenure.runs where detail::text = $1")


def _fill(connection: psycopg.Connection, runs: int) -> None:
    connection.execute(MANY.replace(":runs", str(runs)))


def _is_careful(name: str) -> bool:
    return name in CAREFULLY or name.startswith(("runnable", "newest"))


def _reading_whole_tables(connection: psycopg.Connection, names: Iterable[str]) -> dict[str, str]:
    """The plans of those that do."""
    plans = {name: _whole_table(connection, STATEMENTS[name]) for name in names}
    return {name: plan for name, plan in plans.items() if plan is not None}


def _reading_indexes_of_many(connection: psycopg.Connection) -> dict[str, str]:
    """The plans of those that do. (By its number each of the few found is looked up.)"""
    plans = {name: _plan(connection, STATEMENTS[name]) for name in FEW}
    used = {name: set(re.findall(r"\bruns_\w+", plan)) for name, plan in plans.items()}
    return {name: plans[name] for name in FEW if not _are_few(used[name], FEW[name])}


def _are_few(used: set[str], allowed: set[str]) -> bool:
    return bool(used & allowed) and used <= allowed | {"runs_pkey"}


def _whole_table(connection: psycopg.Connection, sql: str) -> str | None:
    plan = _plan(connection, sql)
    return plan if re.search(r"Seq Scan on \w+", plan) else None


def _plan(connection: psycopg.Connection, sql: str) -> str:
    cursor = psycopg.ClientCursor(connection)
    return "\n".join(line for (line,) in cursor.execute("explain (generic_plan) " + sql))


def test_every_statement_is_looked_at_or_excused() -> None:
    assert set(SQL) >= NO_PLAN | MAY_READ_ALL
