"""A long history on PostgreSQL: pages and claims among 1,000,000 ended and 1,000,000 queued runs
against among a thousand of each; and one run, against a bare select of the same rows.

The million is made by multiplying a thousand real runs in SQL; every table keeps its true shape.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from time import perf_counter

import psycopg
from tests.postgres.server import Server

from benchmarks.figures import Figure, typical
from benchmarks.postgres_server import durable_server, fresh_store
from benchmarks.workload import created, three_steps, updates_of
from tenure.model.compose import new_run
from tenure.model.errors import TenureError
from tenure.model.leases import ClaimRequest
from tenure.model.query import RunFilter
from tenure.model.status import RunStatus
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.statements import SQL

FEW, TIMES = 1_000, 1_000
ROUNDS = 300
CLAIMS = 40
TABLES = ("runs", "run_specs", "run_labels", "steps", "tasks")
LISTS = {
    "50": RunFilter(),
    "50 failed": RunFilter(statuses=frozenset({RunStatus.FAILED})),
    "50 of a workflow": RunFilter(workflow_name="rolling-deploy"),
    "50 with a label": RunFilter(labels={"team": "web"}),
}
BARE = """
select r.seq, r.run_id, r.workflow_name, r.status, r.version, r.fence, r.owner_id, r.claim_id,
  r.lease_expires_at, r.takeovers, r.takeovers_without_progress, r.recovery, r.queue, r.rank,
  r.ready_at, r.run_after, r.cancel_requested_at, r.created_at, r.started_at, r.finished_at,
  r.updated_at, r.counts::text, r.detail::text, r.callback_error::text, s.summary::text,
  s.callbacks::text, s.vars::text, s.plan::text,
  array(select t.body::text from tenure.steps t where t.seq = r.seq),
  array(select k.body::text from tenure.tasks k where k.seq = r.seq)
from tenure.runs r join tenure.run_specs s on s.seq = r.seq where r.run_id = $1
"""
"""As texts: nobody reads them."""
_ids = (f"history-{number:x}" for number in count())


def measure() -> list[Figure]:
    with durable_server() as server:
        return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Figure]:
    small = await fresh_store(server, "few")
    large = await fresh_store(server, "many")
    async with small, large:
        for store in (small, large):
            await _thousand(store)
        await _multiply(server.url("many"))
        return [
            await _read_against_bare(large, server.url("many")),
            *[await _list(name, where, small, large) for name, where in LISTS.items()],
            await _claim(small, large),
        ]


async def _thousand(store: PostgresStore) -> None:
    """Ended ones, one in ten failed; and as many that wait."""
    runs = [three_steps(f"ended-000000-{number:06}", hosts=("web1",)) for number in range(FEW)]
    endings = [RunStatus.FAILED if n % 10 == 0 else RunStatus.SUCCESS for n in range(FEW)]
    await _written(store.update_runs([created(run) for run in runs]))
    moments = zip(
        *(updates_of(run, end) for run, end in zip(runs, endings, strict=True)), strict=True
    )
    for moment in moments:
        await _written(store.update_runs(moment))
    waiting = [three_steps(f"queue-000000-{number:06}", hosts=("web1",)) for number in range(FEW)]
    await _written(store.update_runs([new_run(run, next(_ids), _ids) for run in waiting]))


async def _written(outcomes: Awaitable[Sequence[object]]) -> None:
    for outcome in await outcomes:
        if isinstance(outcome, TenureError):
            raise outcome


async def _multiply(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("set synchronous_commit = off")
        for table in TABLES:
            found = await connection.execute(
                "select column_name from information_schema.columns where table_schema = 'tenure' "
                "and table_name = %s and is_generated = 'NEVER' order by ordinal_position",
                (table,),
            )
            names = [name for (name,) in await found.fetchall()]
            await connection.execute(
                f"insert into tenure.{table} ({', '.join(names)}) overriding system value "
                f"select {', '.join(_copied(name) for name in names)} "
                f"from generate_series(1, {TIMES - 1}) n, tenure.{table} t"
            )
        await connection.execute("vacuum analyze")
        await connection.execute("checkpoint")


def _copied(column: str) -> str:
    return {
        "seq": f"t.seq + n * {2 * FEW}",
        "run_id": "substr(t.run_id, 1, 6) || lpad(n::text, 6, '0') || substr(t.run_id, 13)",
        "created_at": "t.created_at + n * interval '1 second'",
    }.get(column, f"t.{column}")


async def _read_against_bare(store: PostgresStore, url: str) -> Figure:
    ours, bare = [], []
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, cursor_factory=psycopg.AsyncRawCursor, prepare_threshold=0
    ) as connection:
        own = (connection.info.backend_pid,)
        await connection.execute(SQL["for_prepared_statements"], own, prepare=False)
        for _ in range(2 * ROUNDS):
            ours.append(await _seconds(partial(store.get_run, _any_id())))
            bare.append(await _seconds(partial(_rows_of, connection, _any_id())))
    return Figure(
        name="postgres get_run among 1,000,000, against a bare select of its rows",
        unit="ms",
        ours=typical(ours[ROUNDS:]) * 1000,
        limit=typical(bare[ROUNDS:]) * 1000,
        at_most=2,
    )


def _any_id() -> str:
    """Each his own: who came second would find in memory what the first had fetched."""
    return f"ended-{random.randrange(TIMES):06}-{random.randrange(FEW):06}"


async def _rows_of(
    connection: psycopg.AsyncConnection[tuple[object, ...]], run_id: str
) -> list[tuple[object, ...]]:
    return await (await connection.execute(BARE, (run_id,))).fetchall()


async def _list(name: str, where: RunFilter, small: PostgresStore, large: PostgresStore) -> Figure:
    return await _compared(
        f"postgres list {name}: 2,000,000 runs against 2,000",
        small,
        large,
        lambda store: store.list_runs(where),
        ROUNDS,
        1.5,
    )


async def _claim(small: PostgresStore, large: PostgresStore) -> Figure:
    return await _compared(
        "postgres claim of 10: 1,000,000 queued and ended against 1,000",
        small,
        large,
        lambda store: store.claim_runs(
            ClaimRequest(owner_id="bench", seconds=600, claim_id=next(_ids), limit=10)
        ),
        CLAIMS,
        2,
    )


async def _compared(
    name: str,
    small: PostgresStore,
    large: PostgresStore,
    ask: Callable[[PostgresStore], Awaitable[object]],
    rounds: int,
    at_most: float,
) -> Figure:
    """In turns; the first half does not count: caches are filled by it."""
    few, many = [], []
    for _ in range(2 * rounds):
        few.append(await _seconds(partial(ask, small)))
        many.append(await _seconds(partial(ask, large)))
    return Figure(
        name=name,
        unit="ms",
        ours=typical(many[rounds:]) * 1000,
        limit=typical(few[rounds:]) * 1000,
        at_most=at_most,
    )


async def _seconds(ask: Callable[[], Awaitable[object]]) -> float:
    start = perf_counter()
    await ask()
    return perf_counter() - start
