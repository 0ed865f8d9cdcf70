"""A store after a long time: many runs have ended, few are under way. What only ever grows is large
in it, and whatever is few in life is few here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

_HELD = 100
_ROWS = """
insert into tenure.runs (seq, run_id, workflow_name, status, version, fence, owner_id, claim_id,
  lease_expires_at, takeovers, takeovers_without_progress, recovery, queue, rank, ready_at,
  readiness, approved, cancel_requested_at, created_at, finished_at, updated_at, counts)
overriding system value
select n, 'run-' || lpad(n::text, 8, '0'), 'deploy-' || n % 50, status, 1, 1,
  case when held then 'worker-' || n % 20 end, case when held then 'claim-' || n % 40 end,
  case when held then now() end, 0, 0, case when orphaned then 'interrupt' else 'resume' end,
  'queue-' || n % 3, 0, now() + n * interval '1 second',
  case when status <> 'queued' or held then 0 when n % 400 = 50 then 2 when n % 10000 = 90 then 3
    else 1 end,
  true, case when n % 10000 = 50 then now() end, now() + n * interval '1 second',
  case when status in ('success', 'failed') then now() + n * interval '1 second' end, now(), '{}'
from generate_series(:first, :last) n,
  lateral (select n > :last - :held as held, n % 10000 = 11 as orphaned) h,
  lateral (select case when held or orphaned then 'running' when n % 40 = 10 then 'queued'
    when n % 4000 = 1 then 'failed' else 'success' end as status) s;
insert into tenure.run_specs (seq, definition_digest, summary, plan)
select n, 'digest-' || n % 4000, '{}', '[]' from generate_series(:first, :last) n;
insert into tenure.run_labels (key, value, seq)
select 'team', 'team-' || n % 9, n from generate_series(:first, :last) n;
insert into tenure.definitions (digest, body)
select 'digest-' || n, '""' from generate_series(0, 4000) n on conflict do nothing;
insert into tenure.pruned (seq, definition_digest)
select -n, 'digest-' || n from generate_series(1, 5000) n on conflict do nothing;
insert into tenure.journal (seq, version, at, fence, update_id, changed_in, events)
select n, 1, now(), 1, 'update', '1', '[]' from generate_series(:first, :last) n;
insert into tenure.steps (seq, step, body)
select n, 0, '{}' from generate_series(:first, :last) n;
insert into tenure.tasks (seq, step, host, item, body)
select n, 0, 'web1', -1, '{}' from generate_series(:first, :last) n;
insert into tenure.deliveries (number, id, seq, target, version, ordinal, origin, run_status, state,
  blocked, attempts, due_at, redelivery, event, died_at, token)
overriding system value
select n, 'd-' || n, n, 'hook', 1, 0, 'https://' || n / 10 % 30, 'success',
  case when n % 10 = 0 then 'waiting' when n % 2000 = 1 then 'dead' else 'delivered' end,
  false, 1, now(), false, '{}',
  case when n % 2000 = 1 then now() end, case when n % 200 = 0 then 'token-' || n / 2000 end
from generate_series(:first, :last) n;
insert into tenure.log_chunks (seq, step, host, item, attempt, stream, start, fence, data)
select n, 0, 'web1', -1, 1, 'stdout', 0, 1, 'x' from generate_series(:first, :last) n;
select setval(pg_get_serial_sequence('tenure.runs', 'seq'), :last),
  setval(pg_get_serial_sequence('tenure.deliveries', 'number'), :last);
"""
"""The journal is that of a restored store: as if one transaction had written it all."""
_TABLES = """
select oid::regclass::text from pg_class
where relnamespace = 'tenure'::regnamespace and relkind = 'r'
"""
_INDEXES = """
select i.indexrelid::regclass::text, i.indrelid::regclass::text, k.conname,
  coalesce(pg_get_constraintdef(k.oid), pg_get_indexdef(i.indexrelid))
from pg_index i join pg_class c on c.oid = i.indrelid
left join pg_constraint k on k.conindid = i.indexrelid
where c.relnamespace = 'tenure'::regnamespace
"""


def fill(connection: psycopg.Connection, last: int, first: int = 1) -> None:
    values = {"first": first, "last": last, "held": _HELD}
    connection.execute(re.sub(r":(first|last|held)\b", lambda name: str(values[name[1]]), _ROWS))


def fill_at_once(connection: psycopg.Connection, runs: int) -> None:
    """The same for many: the indexes are made afterwards, and nothing of it is logged, in a third
    of the time. The planner does not care."""
    for (table,) in connection.execute(_TABLES).fetchall():
        connection.execute(f"alter table {table} set unlogged")
    with _without_indexes(connection):
        fill(connection, runs)


def forget_statistics(connection: psycopg.Connection) -> None:
    """As if nobody had ever analysed or vacuumed: making an index counts the rows."""
    connection.execute(
        "update pg_class set relpages = 0, reltuples = -1, relallvisible = 0, relallfrozen = 0 "
        "where relnamespace = 'tenure'::regnamespace and relkind = 'r'"
    )
    connection.execute(
        "update pg_class set relpages = 1, reltuples = 0 "
        "where relnamespace = 'tenure'::regnamespace and relkind = 'i'"
    )


@contextmanager
def _without_indexes(connection: psycopg.Connection) -> Iterator[None]:
    connection.execute("set maintenance_work_mem = '256MB'")
    found = connection.execute(_INDEXES).fetchall()
    for name, table, constraint, _ in found:
        connection.execute(
            f"alter table {table} drop constraint {constraint}"
            if constraint
            else f"drop index {name}"
        )
    yield
    for _, table, constraint, definition in found:
        connection.execute(
            f"alter table {table} add constraint {constraint} {definition}"
            if constraint
            else definition
        )
