"""Lists of a long history: runs with an owner are in other indexes than the rest, and times are
looked up among some of the runs only. What is listed shows nothing of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSummary
from tenure.model.status import TERMINAL_RUN, RunStatus
from tenure.stores.postgres import PostgresStore
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
HISTORY = """
with made as (
  insert into tenure.runs (run_id, workflow_name, status, version, fence, owner_id,
    lease_expires_at, takeovers, takeovers_without_progress, recovery, queue, rank, ready_at,
    readiness, approved, created_at, started_at, finished_at, updated_at, counts)
  select 'run-' || n, 'deploy-' || n %% 7, case n %% 5 when 0 then 'queued' when 1 then 'running'
      when 2 then 'failed' else 'success' end, 1, 1,
    case when n %% 5 < 2 and n %% 3 = 0 then 'worker-1' end,
    case when n %% 5 < 2 and n %% 3 = 0 then clock_timestamp() + interval '1 hour' end,
    0, 0, 'resume', 'queue-' || n %% 4, 0, at, 0, true, at, at,
    case when n %% 5 > 1 then at end, at, '{}'
  from generate_series(1, 600) n, lateral (select %s + n * interval '10 minutes' as at) moment
  order by n
  returning seq
)
insert into tenure.run_specs (seq, summary, plan) select seq, '{}', '[]' from made
"""
FILTERS = {
    "running": RunFilter(statuses=frozenset({RunStatus.RUNNING})),
    "unfinished or failed": RunFilter(
        statuses=frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.FAILED})
    ),
    "ended": RunFilter(statuses=TERMINAL_RUN),
    "workflow": RunFilter(workflow_name="deploy-3"),
    "queue": RunFilter(queue="queue-2"),
    "workflow, queue and status": RunFilter(
        workflow_name="deploy-6", queue="queue-2", statuses=frozenset({RunStatus.QUEUED})
    ),
    "since": RunFilter(created_from=FIRST + timedelta(hours=41)),
    "until": RunFilter(created_to=FIRST + timedelta(hours=41)),
    "within": RunFilter(
        created_from=FIRST + timedelta(hours=30), created_to=FIRST + timedelta(hours=55)
    ),
    "before all": RunFilter(created_to=FIRST),
    "after all": RunFilter(created_from=FIRST + timedelta(days=30)),
    "workflow within": RunFilter(
        workflow_name="deploy-3",
        created_from=FIRST + timedelta(hours=30),
        created_to=FIRST + timedelta(hours=55),
    ),
}


@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS)
async def test_lists_have_every_run_that_matches_newest_first(
    postgres_database: TestDatabase, where: RunFilter
) -> None:
    with psycopg.connect(postgres_database.url, autocommit=True) as connection:
        connection.execute(HISTORY, (FIRST,))
    async with PostgresStore(postgres_database.url) as store:
        everything = await _listed(store, RunFilter())
        assert len(everything) == 600
        expected = [run.run_id for run in everything if where.matches(run)]
        assert [run.run_id for run in await _listed(store, where)] == expected


async def _listed(store: PostgresStore, where: RunFilter) -> list[RunSummary]:
    """Page by page."""
    found: list[RunSummary] = []
    cursor: str | None = None
    while True:
        page = await store.list_runs(where, limit=40, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found
