-- Every statement of the PostgreSQL store, by name. Braces name a fragment above.
--
-- Rows are passed as JSON texts, many at once: one value for the driver instead of thousands. Bodies
-- are passed beside their rows, in the same order: parsed with the row, a NUL in the output of a task
-- would be an error. `lateral (… limit 1)` keeps the planner to index look-ups, also on tables without
-- statistics; clock() is volatile, so in an index condition it must be a sub-select.

-- fragment: head
json_build_array(r.seq, r.run_id, r.workflow_name, r.status, r.version, r.fence, r.owner_id,
  r.claim_id, r.lease_expires_at,
  r.owner_id is not null and r.lease_expires_at > (select tenure.clock()),
  r.takeovers, r.takeovers_without_progress, r.recovery, r.queue, r.rank, r.ready_at, r.run_after,
  r.cancel_requested_at, r.created_at, r.started_at, r.finished_at, r.updated_at, r.counts,
  r.detail, r.callback_error)

-- fragment: steps
(select json_agg(json_build_array(t.step, t.body, t.added_hosts))
  from tenure.steps t where t.seq = r.seq),
(select json_agg(json_build_array(k.step, k.host, k.item, k.body) order by k.step, k.host, k.item)
  from tenure.tasks k where k.seq = r.seq)

-- fragment: delivery
json_build_array(d.id, r.run_id, r.workflow_name, s.callbacks, d.target, d.event, d.run_status,
  d.state, d.attempts, d.due_at, d.settled_at, d.died_at, d.last_error, d.redelivery, d.token,
  d.settled_token, d.seq, d.number)

-- fragment: of_its_run
lateral (select * from tenure.runs where seq = d.seq limit 1) r,
lateral (select * from tenure.run_specs where seq = d.seq limit 1) s

-- fragment: new_steps
insert into tenure.steps (seq, step, body, added_hosts)
select ok.seq, t.step, t.body, case when json_typeof(t.added) = 'array' then t.added end
from rows from (unnest($3::integer[], $4::integer[]), json_array_elements($5::json),
    json_array_elements($6::json)) as t(i, step, body, added)
join ok on ok.i = t.i
on conflict (seq, step) do update set body = excluded.body

-- fragment: new_tasks
insert into tenure.tasks (seq, step, host, item, body)
select ok.seq, t.step, t.host, t.item, t.body
from rows from (unnest($7::integer[], $8::integer[], $9::integer[]),
    json_array_elements_text($10::json), json_array_elements($11::json))
  as t(i, step, item, host, body)
join ok on ok.i = t.i
on conflict (seq, step, host, item) do update set body = excluded.body

-- fragment: new_journal
insert into tenure.journal (seq, version, at, fence, update_id, changed_in, events)
select seq, version, updated_at, fence, update_id, changed_in, events
from ok where update_id is not null

-- name: begin
-- Whatever the role's default: reads must see the rows locked before them as they are now.
begin isolation level read committed

-- name: commit
commit

-- name: confirm
-- A commit record after everything visible: once it is durable, also on a replica, all of that is.
select pg_logical_emit_message(true, 'tenure', ''::text)

-- name: for_prepared_statements
-- One generic plan for each statement, perhaps made while tables are empty. Not behind a pooler, where
-- these settings would stay for other clients: it reports another process id than the server's.
select set_config('plan_cache_mode', 'force_generic_plan', false),
  set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)
where pg_backend_pid() = $1::integer

-- name: carefully
-- For the rest of a transaction. A client that hangs must not keep its locks; and a table may be
-- larger than the planner's statistics say.
select set_config('idle_in_transaction_session_timeout', '10s', true),
  set_config('enable_seqscan', 'off', true)

-- name: functions_out_of_reach
-- Every role may execute a function unless that right was revoked, perhaps by default privileges.
select p.oid::regprocedure::text from pg_proc p
where p.pronamespace = 'tenure'::regnamespace and not has_function_privilege(p.oid, 'execute')
order by 1

-- name: listen
listen tenure

-- name: listen_to_queues
listen tenure_queue

-- name: announce
-- Nothing is written, so the commit need not wait for the disk.
select set_config('synchronous_commit', 'off', true),
  array(select pg_notify(channel, topics)::text
    from unnest($1::text[], $2::text[]) as t(channel, topics))

-- name: make_room_for_hints
-- As a side effect, the server discards notifications that all listeners have read.
select pg_notification_queue_usage()

-- name: clock
select tenure.clock()

-- name: schema
-- The first statement on every connection, repeated at intervals: the store may have been migrated, or
-- its server made read-only. Poolers keep time zone and date style for each client, but not isolation
-- and statement timeout, which are therefore not set behind one (as `for_prepared_statements`). The
-- server stops statements that take longer than the client waits.
select coalesce(max(number), 0), current_setting('transaction_read_only') = 'on',
  set_config('timezone', 'UTC', false),
  set_config('datestyle', 'ISO', false), case when pg_backend_pid() = $1::integer then
    set_config('default_transaction_isolation', 'read committed', false)
    || set_config('statement_timeout', $2::text, false) end
from tenure.migrations

-- fragment: created
-- Existing runs are left out: the insert would wait for a transaction that is changing one. In order of
-- their ids, so that two creators cannot deadlock. An existing workflow text gets a shared lock, so
-- that no prune removes it before the commit; one inserted concurrently is locked by an update of no
-- column.
with given as materialized (
  select * from rows from (json_to_recordset($1::json) as (i integer, run_id text, workflow_name text,
    status text, version bigint, fence bigint, owner_id text, claim_id text, seconds float8,
    recovery text, queue text, rank smallint, ready_at timestamptz, readiness smallint,
    approved boolean, run_after timestamptz, started_at timestamptz, updated_at timestamptz, counts json,
    detail text, digest text, definition text, summary text, callbacks text, vars text, plan text,
    labels json, retry_of text, update_id text), json_array_elements($2::json)) as g(i, run_id, workflow_name,
    status, version, fence, owner_id, claim_id, seconds, recovery, queue, rank, ready_at,
    readiness, approved, run_after, started_at, updated_at, counts, detail, digest, definition,
    summary, callbacks, vars, plan, labels, retry_of, update_id, events)
), made as (
  insert into tenure.runs (run_id, workflow_name, retry_root, status, version, fence, owner_id,
    claim_id, lease_expires_at, takeovers, takeovers_without_progress, recovery, queue, rank, ready_at,
    readiness, approved, run_after, created_at, started_at, updated_at, counts, detail)
  select g.run_id, g.workflow_name, coalesce((select coalesce(o.retry_root, o.run_id)
    from tenure.runs o where o.run_id = g.retry_of limit 1), g.retry_of), g.status, g.version, g.fence, g.owner_id, g.claim_id,
    tenure.clock() + make_interval(secs => g.seconds), 0, 0, g.recovery, g.queue, g.rank,
    g.ready_at, g.readiness, g.approved, g.run_after, g.updated_at, g.started_at, g.updated_at, g.counts,
    g.detail::json
  from given g where (select 1 from tenure.runs r where r.run_id = g.run_id limit 1) is null
  order by g.run_id collate "C"
  on conflict (run_id) do nothing
  returning seq, run_id, lease_expires_at, changed_in
), ok as materialized (
  select m.seq, m.lease_expires_at, m.changed_in, g.* from made m join given g on g.run_id = m.run_id
), specs as (
  insert into tenure.run_specs (seq, definition_digest, summary, callbacks, vars, plan)
  select seq, digest, summary::json, callbacks::json, vars::json, plan::json from ok
), labels as (
  insert into tenure.run_labels (key, value, seq)
  select l.key, l.value, ok.seq from ok, json_each_text(ok.labels) l
), definitions as (
  insert into tenure.definitions (digest, body)
  select g.digest, g.definition::json from given g left join lateral (
    select true as kept from tenure.definitions d where d.digest = g.digest
    limit 1 for key share) k on true
  where g.definition is not null and k.kept is null
    and exists (select from ok where ok.digest = g.digest)
  order by g.digest
  on conflict (digest) do update set body = excluded.body where false
), journal as (
  {new_journal}
)

-- name: active_retry
-- Of the run's chain of retries.
select a.run_id, a.status, a.readiness = 3 from tenure.runs a
where a.retry_root = coalesce((select coalesce(o.retry_root, o.run_id) from tenure.runs o
    where o.run_id = $1::text), $1::text)
  and a.retry_root is not null and a.status in ('queued', 'running')

-- name: create_runs
{created}, steps as (
  {new_steps}
), tasks as (
  {new_tasks}
), deliveries as (
  insert into tenure.deliveries (id, seq, target, version, ordinal, origin, run_status, state,
    blocked, attempts, due_at, redelivery, event)
  select d.id, ok.seq, d.target, ok.version, d.ordinal, d.origin, ok.status, 'waiting',
    row_number() over (partition by d.i, d.target order by d.ordinal) > 1, 0, tenure.clock(),
    false, d.event::json
  from json_to_recordset($12::json)
    as d(i integer, id text, target text, ordinal integer, origin text, event text)
  join ok on ok.i = d.i order by d.i, d.ordinal
)
select tenure.clock(),
  coalesce((select json_agg(json_build_array(i, seq, lease_expires_at)) from ok), '[]')::text

-- name: create_plain_runs
-- Runs without started steps and without callbacks: most of those submitted.
{created}
select tenure.clock(),
  coalesce((select json_agg(json_build_array(i, seq, lease_expires_at)) from ok), '[]')::text

-- fragment: updated
-- Runs that have not changed since the update was decided and that no other transaction is writing.
-- Without a status, only steps and hosts have changed, and the rest of the run's row is kept.
with given as materialized (
  select * from rows from (json_to_recordset($1::json) as (i integer, seq bigint, base bigint,
    base_fence bigint, base_owner text, status text, version bigint, fence bigint, owner_id text,
    claim_id text, seconds float8, extends boolean, takeovers integer,
    takeovers_without_progress integer, readiness smallint, approved boolean,
    cancel_requested_at timestamptz,
    started_at timestamptz, finished_at timestamptz, updated_at timestamptz, counts json,
    detail text, callback_error text, update_id text), json_array_elements($2::json)) as g(i, seq,
    base, base_fence, base_owner, status, version, fence, owner_id, claim_id, seconds, extends,
    takeovers, takeovers_without_progress, readiness, approved, cancel_requested_at, started_at,
    finished_at, updated_at, counts, detail, callback_error, update_id, events)
), ours as materialized (
  select g.* from given g, lateral (
    select 1 from tenure.runs r
    where r.seq = g.seq and r.version = g.base and r.fence = g.base_fence
      and r.owner_id is not distinct from g.base_owner
    limit 1 for no key update skip locked) l
), ok as (
  update tenure.runs r set status = coalesce(g.status, r.status), version = g.version,
    fence = coalesce(g.fence, r.fence),
    owner_id = case when g.status is null then r.owner_id else g.owner_id end,
    claim_id = case
      when g.status is null then r.claim_id
      when g.owner_id is not null then coalesce(g.claim_id, r.claim_id) end,
    lease_expires_at = case
      when g.status is null then r.lease_expires_at
      when g.owner_id is null then null
      when g.seconds is null then r.lease_expires_at
      when g.extends
        then greatest(r.lease_expires_at, tenure.clock() + make_interval(secs => g.seconds))
      else tenure.clock() + make_interval(secs => g.seconds) end,
    takeovers = coalesce(g.takeovers, r.takeovers),
    takeovers_without_progress = coalesce(g.takeovers_without_progress,
      r.takeovers_without_progress),
    readiness = coalesce(g.readiness, r.readiness), approved = coalesce(g.approved, r.approved),
    cancel_requested_at = case
      when g.status is null then r.cancel_requested_at else g.cancel_requested_at end,
    started_at = case when g.status is null then r.started_at else g.started_at end,
    finished_at = case when g.status is null then r.finished_at else g.finished_at end,
    updated_at = g.updated_at,
    changed_in = greatest(r.changed_in, pg_current_xact_id()), counts = g.counts,
    detail = case when g.status is null then r.detail else g.detail::json end,
    callback_error = coalesce(g.callback_error::json, r.callback_error)
  from ours g where r.seq = any(array(select seq from ours)) and g.seq = r.seq
  returning g.i, r.seq, r.version, r.updated_at, r.fence, r.status, r.changed_in, g.update_id,
    g.events
), steps as (
  {new_steps}
), tasks as (
  {new_tasks}
), journal as (
  {new_journal}
)

-- name: update_runs
-- A new callback locks an earlier one of its target that waits, until the commit: the relay that
-- settles that one then sees the new one.
{updated}, deliveries as (
  insert into tenure.deliveries (id, seq, target, version, ordinal, origin, run_status, state,
    blocked, attempts, due_at, redelivery, event)
  select d.id, d.seq, d.target, d.version, d.ordinal, d.origin, d.status, 'waiting',
    d.place > 1 or e.waits is not null, 0, tenure.clock(), false, d.event::json
  from (
    select n.*, ok.seq, ok.version, ok.status,
      row_number() over (partition by n.i, n.target order by n.ordinal) as place
    from json_to_recordset($12::json)
      as n(i integer, id text, target text, ordinal integer, origin text, event text)
    join ok on ok.i = n.i) d
  left join lateral (
    select true as waits from tenure.deliveries e
    where e.state = 'waiting' and e.seq = d.seq and e.target = d.target
    order by e.version, e.ordinal limit 1 for share skip locked) e on true
  order by d.i, d.ordinal
)
select tenure.clock(), coalesce((select json_agg(i) from ok), '[]')::text

-- name: update_quiet_runs
-- Without callbacks.
{updated}
select tenure.clock(), coalesce((select json_agg(i) from ok), '[]')::text

-- name: lock_runs
select l.seq from unnest($1::text[]) u(run_id), lateral (
  select r.seq from tenure.runs r where r.run_id = u.run_id limit 1
  for no key update skip locked) l

-- name: runs_to_write
-- Runs with the ids of the writes that made version `base + 1` and version 1, and the time of the
-- decision; steps and hosts if `whole`.
select json_build_array({head}, s.callbacks, case when u.whole then s.plan end,
  case when u.whole then (
    select json_agg(json_build_array(t.step, t.body, t.added_hosts))
    from tenure.steps t where t.seq = r.seq) end,
  case when u.whole then (
    select json_agg(json_build_array(k.step, k.host, k.item, k.body)
      order by k.step, k.host, k.item)
    from tenure.tasks k where k.seq = r.seq) end,
  (select j.update_id from tenure.journal j where j.seq = r.seq and j.version = u.base + 1),
  (select j.update_id from tenure.journal j where j.seq = r.seq and j.version = 1),
  tenure.clock())::text
from unnest($1::text[], $2::bigint[], $3::boolean[]) u(run_id, base, whole),
  lateral (select * from tenure.runs r where r.run_id = u.run_id limit 1) r,
  lateral (select * from tenure.run_specs where seq = r.seq limit 1) s

-- name: versions_by_id
select u.run_id, r.version from unnest($1::text[]) u(run_id), lateral (
  select version from tenure.runs where run_id = u.run_id limit 1) r

-- name: runs_by_id
select u.run_id, json_build_array({head}, s.summary, s.callbacks, s.vars, s.plan, {steps})::text
from unnest($1::text[]) u(run_id),
  lateral (select * from tenure.runs where run_id = u.run_id limit 1) r,
  lateral (select * from tenure.run_specs where seq = r.seq limit 1) s

-- name: runs_by_seq
select json_build_array({head}, s.summary, s.callbacks, s.vars, s.plan, {steps}, s.definition_digest)::text
from unnest($1::bigint[]) u(seq),
  lateral (select * from tenure.runs where seq = u.seq limit 1) r,
  lateral (select * from tenure.run_specs where seq = u.seq limit 1) s

-- name: seq_of_run
select seq from tenure.runs where run_id = $1

-- name: definition
select (select d.body::text from tenure.definitions d where d.digest = s.definition_digest)
from tenure.runs r, lateral (select * from tenure.run_specs where seq = r.seq limit 1) s
where r.run_id = $1

-- name: journal_after
select json_build_array(j.version, j.at, j.fence, j.events)::text
from tenure.journal j where j.seq = $1 and j.version >= $2 order by j.version limit $3

-- name: changes_after
-- Up to the oldest transaction still running, so that nothing is added before the cursor later.
select json_build_array(j.changed_in::text::bigint, j.seq, j.version, j.at, j.fence, j.events,
  r.run_id)::text
from tenure.journal j, lateral (select run_id from tenure.runs where seq = j.seq limit 1) r
where (j.changed_in, j.seq, j.version) > ($1::text::xid8, $2::bigint, $3::bigint)
  and j.changed_in < (select pg_snapshot_xmin(pg_current_snapshot()))
order by j.changed_in, j.seq, j.version limit $4

-- name: oldest_at_work
select pg_snapshot_xmin(pg_current_snapshot())::text

-- name: changes_of_another_server
-- From the dump of another server, whose transaction ids are ahead of this one's.
select count(*) from tenure.journal
where changed_in >= (select pg_snapshot_xmax(pg_current_snapshot()))

-- name: adopt_runs
-- Puts them first in the feed; else they would show only when this server reaches their ids.
update tenure.runs set changed_in = '1'
where changed_in >= (select pg_snapshot_xmax(pg_current_snapshot()))

-- name: adopt_journal
update tenure.journal set changed_in = '1'
where changed_in >= (select pg_snapshot_xmax(pg_current_snapshot()))

-- fragment: ended_leases
-- Runs that a worker may resume: the lease has expired, or the owner is proven dead.
select r.* from tenure.runs r
where r.owner_id is not null
  and (($3::boolean and r.lease_expires_at <= (select tenure.clock())) or r.owner_id = any($4::text[]))
  and (r.status = 'queued' or r.recovery = 'resume')
  and r.queue = any($1::text[])
  and r.approved and (r.run_after is null or r.run_after <= (select tenure.clock()))

-- name: held_under_claim
-- All of them, in claim order; without a head if another transaction is writing the run.
select l.head::text, l.at from (
  select r.seq, r.rank, r.ready_at from tenure.runs r where r.owner_id = $1 and r.claim_id = $2
) h left join lateral (
  select {head} as head, tenure.clock() as at from tenure.runs r
  where r.seq = h.seq and r.owner_id = $1 and r.claim_id = $2
  limit 1 for no key update skip locked) l on true
order by h.rank, h.ready_at, h.seq

-- name: promote_parked
-- Runs whose run_after has passed become ready.
update tenure.runs r set readiness = 1 where r.seq = any(array(
  select p.seq from tenure.runs p
  where p.readiness = 2 and p.ready_at <= (select tenure.clock())
  order by p.ready_at limit 1000 for no key update skip locked))

-- name: pick_by_priority
-- One ordered range per queue, locked while it is read: concurrent claims take the next ones.
select {head}::text, tenure.clock() from (
  select p.* from unnest($1::text[]) q(queue), lateral (
    select * from tenure.runs r where r.readiness = 1 and r.queue = q.queue
    order by r.rank, r.ready_at, r.seq limit $2 for no key update skip locked) p
  union all
  select e.* from (
    {ended_leases} order by r.rank, r.ready_at, r.seq limit $2 for no key update skip locked) e
) r order by r.rank, r.ready_at, r.seq limit $2

-- name: pick_by_age
select {head}::text, tenure.clock() from (
  select p.* from unnest($1::text[]) q(queue), lateral (
    select * from tenure.runs r where r.readiness = 1 and r.queue = q.queue
    order by r.ready_at, r.seq limit $2 for no key update skip locked) p
  union all
  select e.* from (
    {ended_leases} order by r.ready_at, r.seq limit $2 for no key update skip locked) e
) r order by r.ready_at, r.seq limit $2

-- name: waiting_runs
-- What a claim would get first; locks nothing.
select json_build_array({head}, s.summary, s.callbacks, s.vars, s.plan, {steps},
  s.definition_digest)::text
from (
  select p.* from unnest($1::text[]) q(queue), lateral (
    select * from tenure.runs r where r.readiness = 1 and r.queue = q.queue
    order by r.rank, r.ready_at, r.seq limit $2) p
  order by p.rank, p.ready_at, p.seq limit $2
) r, lateral (select * from tenure.run_specs where seq = r.seq limit 1) s
order by r.rank, r.ready_at, r.seq

-- name: pick_abandoned
-- For reconcile: runs that do not resume or are canceled, released by their owner, with an expired
-- lease or of a dead owner.
select {head}::text, tenure.clock() from (
  select o.* from (
    select * from tenure.runs r
    where r.owner_id is null and r.status = 'running' and r.recovery = 'interrupt'
      and r.cancel_requested_at is null
    order by r.seq limit $1 for no key update skip locked) o
  union all
  select c.* from (
    select * from tenure.runs r
    where r.owner_id is null and r.finished_at is null and r.cancel_requested_at is not null
    order by r.seq limit $1 for no key update skip locked) c
  union all
  select e.* from (
    select * from tenure.runs r
    where r.owner_id is not null and (r.recovery = 'interrupt' or r.cancel_requested_at is not null)
      and (($2::boolean and r.lease_expires_at <= (select tenure.clock()))
        or r.owner_id = any($3::text[]))
    order by r.rank, r.ready_at, r.seq limit $1 for no key update skip locked) e
) r order by r.rank, r.ready_at, r.seq limit $1

-- name: renew_leases
-- Runs that no other transaction is writing. Changes no indexed column.
with given as materialized (
  select * from unnest($1::text[], $2::text[], $3::bigint[]) as u(run_id, owner_id, fence)
), ours as materialized (
  select l.seq from given g, lateral (
    select r.seq, r.owner_id, r.fence from tenure.runs r
    where r.run_id = g.run_id limit 1 for no key update skip locked) l
  where l.owner_id = g.owner_id and l.fence = g.fence
)
update tenure.runs r
set lease_expires_at = greatest(r.lease_expires_at, tenure.clock() + make_interval(secs => $4::float8))
where r.seq = any(array(select seq from ours))
returning r.seq

-- name: lease_facts
-- Of leases still held.
select u.i, l.seq, l.lease_expires_at, l.cancel_requested_at, l.version
from unnest($1::text[], $2::text[], $3::bigint[]) with ordinality
  as u(run_id, owner_id, fence, i), lateral (
  select * from tenure.runs r where r.run_id = u.run_id limit 1) l
where l.owner_id = u.owner_id and l.fence = u.fence

-- name: renew_held_deliveries
-- For a claim that is repeated because its answer was lost: all of them, and whether they were renewed
-- (not if another transaction is writing the row). `state || ''` excludes the index of all waiting
-- ones, which may look as good as that of tokens.
with held as materialized (
  select number from tenure.deliveries where token = $1 and state || '' = 'waiting'
), free as materialized (
  select l.number from held h, lateral (
    select d.number from tenure.deliveries d
    where d.number = h.number and d.token = $1 and d.state || '' = 'waiting'
    limit 1 for no key update skip locked) l
), renewed as (
  update tenure.deliveries set held_until = tenure.clock() + make_interval(secs => $2::float8)
  where number = any(array(select number from free))
)
select h.number, h.number = any(array(select number from free)) from held h

-- name: origins_due
-- At most $2 from $1 on; one index look-up per origin.
with recursive origins(origin) as (
  (select d.origin from tenure.deliveries d
    where d.state = 'waiting' and not d.blocked and d.origin >= $1
    order by d.origin limit 1)
  union all
  select (
    select d.origin from tenure.deliveries d
    where d.state = 'waiting' and not d.blocked and d.origin > o.origin
    order by d.origin limit 1)
  from origins o where o.origin is not null
)
select origin from origins where origin is not null limit $2

-- fragment: eligible
-- Of the waiting ones: due, not held, the first of its run and target, and none of these in flight.
not d.blocked and d.due_at <= (select tenure.clock())
and (d.held_until is null or d.held_until <= (select tenure.clock()))
and not exists (
  select 1 from tenure.deliveries e
  where e.state = 'waiting' and e.seq = d.seq and e.target = d.target
    and ((e.version, e.ordinal) < (d.version, d.ordinal)
      or (e.token is not null and e.held_until > (select tenure.clock()))))

-- name: hold_due_deliveries
-- At most $4 of each of these origins.
with due as materialized (
  select p.number, p.due_at from unnest($3::text[]) o(origin), lateral (
    select d.number, d.due_at from tenure.deliveries d
    where d.state = 'waiting' and d.origin = o.origin and {eligible}
    order by d.due_at, d.number limit $4 for no key update skip locked) p
  order by p.due_at, p.number limit $5
)
update tenure.deliveries d
set token = $1, held_until = tenure.clock() + make_interval(secs => $2::float8)
where d.number = any(array(select number from due))

-- name: hold_named_deliveries
-- As above, for these ids and without the origins $6.
with due as materialized (
  select p.number from (
    select l.number, l.due_at,
      row_number() over (partition by l.origin order by l.due_at, l.number) as place
    from unnest($3::text[]) u(id), lateral (
      select d.number, d.due_at, d.origin from tenure.deliveries d
      where d.id = u.id and d.state || '' = 'waiting' and d.origin <> all($6::text[]) and {eligible}
      limit 1 for no key update skip locked) l) p
  where p.place <= $4 order by p.due_at, p.number limit $5
)
update tenure.deliveries d
set token = $1, held_until = tenure.clock() + make_interval(secs => $2::float8)
where d.number = any(array(select number from due))

-- name: held_deliveries
select {delivery}::text from tenure.deliveries d, {of_its_run}
where d.token = $1 and d.state || '' = 'waiting' and d.number <> all($2::bigint[])
order by d.due_at, d.number

-- name: keep_run_of_delivery
-- Keeps the run from being pruned; updates of the run do not wait for this lock.
select k.seq from tenure.deliveries d, lateral (
  select r.seq from tenure.runs r where r.seq = d.seq limit 1 for key share) k
where d.id = $1

-- name: lock_deliveries
-- Those that no other transaction is writing.
select l.number from unnest($1::text[]) u(id), lateral (
  select d.number from tenure.deliveries d where d.id = u.id limit 1
  for no key update skip locked) l

-- name: lock_following
-- Locks the first one that waits behind these, of each run and target: settling these unblocks it.
-- Returns those of these whose next one another transaction is writing.
select d.number from unnest($1::text[]) u(id), lateral (
  select number, seq, target from tenure.deliveries where id = u.id limit 1) d, lateral (
  select e.number, e.blocked from tenure.deliveries e
  where e.state = 'waiting' and e.seq = d.seq and e.target = d.target and e.id <> all($1::text[])
  order by e.version, e.ordinal limit 1) f left join lateral (
  select n.number from tenure.deliveries n where n.number = f.number limit 1
  for no key update skip locked) l on true
where f.blocked and l.number is null

-- name: deliveries_by_id
select {delivery}::text from unnest($1::text[]) u(id),
  lateral (select * from tenure.deliveries where id = u.id limit 1) d, {of_its_run}

-- name: put_deliveries
update tenure.deliveries d set state = g.state, attempts = g.attempts,
  due_at = case when g.delay is null then g.due_at
    else tenure.clock() + make_interval(secs => g.delay) end,
  held_until = null, settled_at = g.settled_at, died_at = g.died_at, redelivery = g.redelivery,
  token = g.token, settled_token = g.settled_token, last_error = g.last_error::json
from json_to_recordset($1::json) as g(number bigint, state text, attempts integer,
  due_at timestamptz, delay float8, settled_at timestamptz, died_at timestamptz,
  redelivery boolean, token text, settled_token text, last_error text)
where d.number = any($2::bigint[]) and d.number = g.number

-- name: unblock_heads
-- The first waiting one of each run and target, locked before.
update tenure.deliveries d set blocked = false
where d.blocked and d.number = any(array(
  select f.number from unnest($1::bigint[], $2::text[]) u(seq, target), lateral (
    select e.number from tenure.deliveries e
    where e.state = 'waiting' and e.seq = u.seq and e.target = u.target
    order by e.version, e.ordinal limit 1) f))

-- name: block_all_but_head
-- After requeueing a callback. May wait for transactions that settle or add one beside it; these never
-- wait for this one.
update tenure.deliveries d set blocked = d.number <> (
    select e.number from tenure.deliveries e
    where e.state = 'waiting' and e.seq = $1 and e.target = $2
    order by e.version, e.ordinal limit 1)
where d.state = 'waiting' and d.seq = $1 and d.target = $2

-- name: lock_failing_runs
-- Runs whose dead letter may change and that no other transaction is writing.
select l.seq from unnest($1::bigint[]) u(seq), lateral (
  select r.seq from tenure.runs r where r.seq = u.seq limit 1
  for no key update skip locked) l

-- name: newest_dead_letters
-- Null for a run without one.
select u.seq, l.letter::text from unnest($1::bigint[]) u(seq) left join lateral (
  select {delivery} as letter from tenure.deliveries d, {of_its_run}
  where d.seq = u.seq and d.died_at is not null
  order by d.died_at desc, d.number desc limit 1) l on true

-- name: show_dead_letters
-- Locked before.
update tenure.runs r set callback_error = g.error::json
from json_to_recordset($1::json) as g(seq bigint, error text)
where r.seq = any($2::bigint[]) and r.seq = g.seq

-- name: append_log
-- Writes if this owner still has the run and the stream ends where the chunk begins.
with run as (
  select seq, fence, owner_id from tenure.runs where run_id = $1
), stream as (
  select run.*, coalesce((
    select c.start + length(c.data) from tenure.log_chunks c
    where c.seq = run.seq and c.step = $4 and c.host = $5 and c.item = $6 and c.attempt = $7
      and c.stream = $8
    order by c.start desc limit 1), 0) as size
  from run
), made as (
  insert into tenure.log_chunks (seq, step, host, item, attempt, stream, start, fence, data)
  select s.seq, $4, $5, $6, $7, $8, s.size, s.fence, $10 from stream s
  where s.fence = $2 and s.owner_id = $3 and s.size = $9 and length($10::bytea) > 0
  on conflict do nothing
  returning 1
)
select s.seq, s.fence, s.owner_id, s.size, exists (select 1 from made) from stream s

-- name: log_chunks
select c.start, c.data from tenure.log_chunks c
where c.seq = $1 and c.step = $2 and c.host = $3 and c.item = $4 and c.attempt = $5
  and c.stream = $6 and c.start >= coalesce((
    select b.start from tenure.log_chunks b
    where b.seq = $1 and b.step = $2 and b.host = $3 and b.item = $4 and b.attempt = $5
      and b.stream = $6 and b.start <= $7
    order by b.start desc limit 1), 0)
  and c.start < $8
order by c.start

-- name: log_size
select c.start + length(c.data) from tenure.log_chunks c
where c.seq = $1 and c.step = $2 and c.host = $3 and c.item = $4 and c.attempt = $5
  and c.stream = $6
order by c.start desc limit 1

-- name: log_sizes
select u.place, coalesce((
  select c.start + length(c.data) from tenure.log_chunks c
  where c.seq = r.seq and c.step = u.step and c.host = u.host and c.item = u.item
    and c.attempt = u.attempt and c.stream = u.stream
  order by c.start desc limit 1), 0)
from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
    with ordinality u(run_id, step, host, item, attempt, stream, place),
  lateral (select seq from tenure.runs where run_id = u.run_id limit 1) r

-- name: log_streams
select c.step, c.host, c.item, c.attempt, c.stream from tenure.log_chunks c
where c.seq = $1 and c.start = 0
order by c.step, c.host, c.item, c.attempt, c.stream

-- name: put_worker
-- Does not wait: returns no row while another transaction holds this one.
with free as materialized (
  select owner_id from tenure.workers where owner_id = $1 for no key update skip locked
), seen as (
  update tenure.workers
  set seen_until = tenure.clock() + make_interval(secs => $2::float8), body = $3::json
  where owner_id = any(array(select owner_id from free)) returning 1
), met as (
  insert into tenure.workers (owner_id, seen_until, body)
  select $1, tenure.clock() + make_interval(secs => $2::float8), $3::json
  where not exists (select 1 from tenure.workers where owner_id = $1)
  on conflict (owner_id) do nothing returning 1
)
select 1 from seen union all select 1 from met

-- name: forget_silent_workers
-- Except rows that another transaction is writing.
delete from tenure.workers where owner_id = any(array(
  select owner_id from tenure.workers where seen_until <= tenure.clock()
  order by owner_id limit 1000 for update skip locked))

-- name: owners
-- Runs by owner and recovery; how many are running without a live lease, and how many are canceled.
select r.owner_id, r.recovery, count(*), count(*) filter (
  where r.status = 'running' and r.lease_expires_at <= (select tenure.clock())),
  count(r.cancel_requested_at)
from (select * from tenure.runs where owner_id is not null offset 0) r group by r.owner_id, r.recovery
union all
select null, 'interrupt', count(*), count(*), count(o.cancel_requested_at) from tenure.runs o
where o.owner_id is null and o.status = 'running' and o.recovery = 'interrupt' having count(*) > 0

-- name: runs_by_status
-- Counts up to $1. A run with an owner has not ended. The status is a range, in the order of the index
-- that begins with it: with an equality the planner may take another index and read past other runs.
select s.status, least($1, (select count(*) from (
    select 1 from tenure.runs r
    where r.owner_id is null and r.status >= s.status and r.status <= s.status
    order by r.status, r.seq limit $1) x)
  + (select count(*) from (
    select 1 from tenure.runs r where s.status in ('queued', 'running')
      and r.owner_id is not null and r.status = s.status limit $1) x))
from unnest($2::text[]) s(status)

-- name: census
-- (Ranges, as above.)
select (select count(*) from (
    select 1 from tenure.deliveries where state >= 'waiting' and state <= 'waiting'
    order by state, number limit $1) x),
  (select count(*) from (
    select 1 from tenure.deliveries where state >= 'dead' and state <= 'dead'
    order by state, number limit $1) x)

-- name: queue_lengths
-- One index look-up per queue, not one per run.
with recursive queues (queue) as (
  (select queue from tenure.runs where readiness = 1 order by queue limit 1)
  union all
  select (select r.queue from tenure.runs r where r.readiness = 1 and r.queue > q.queue
    order by r.queue limit 1)
  from queues q where q.queue is not null
)
select q.queue,
  (select count(*) from (select 1 from tenure.runs r where r.readiness = 1 and r.queue = q.queue
    order by r.ready_at limit $1) x),
  (select extract(epoch from tenure.clock() - r.ready_at)::float8 from tenure.runs r where r.readiness = 1 and r.queue = q.queue
    order by r.ready_at limit 1)
from queues q where q.queue is not null limit $1

-- name: workers
select body::text from tenure.workers where seen_until > tenure.clock() order by owner_id

-- name: lock_prunable
-- Ended $1 seconds ago, oldest first; not while a callback waits or is being requeued, which locks the
-- run. `coalesce` instead of `not exists` or `is null`: these are planned as a join that reads all
-- waiting callbacks, or as a sort of all ended runs.
select r.seq from tenure.runs r
where r.finished_at < (select tenure.clock() - make_interval(secs => $1)) and coalesce((
  select false from tenure.deliveries d where d.state = 'waiting' and d.seq = r.seq limit 1), true)
order by r.finished_at, r.seq limit $2 for update skip locked

-- name: hide_locked
-- Checks for waiting callbacks again: one may have been requeued since; now the runs are locked.
with gone as (
  delete from tenure.runs r where r.seq = any($1::bigint[]) and coalesce((
    select false from tenure.deliveries d where d.state = 'waiting' and d.seq = r.seq limit 1), true)
  returning r.seq
), labels as (
  delete from tenure.run_labels l where l.seq = any(array(select seq from gone))
), specs as (
  delete from tenure.run_specs s where s.seq = any(array(select seq from gone))
  returning s.seq, s.definition_digest
), noted as (
  insert into tenure.pruned (seq, definition_digest)
  select g.seq, s.definition_digest from gone g left join specs s on s.seq = g.seq
)
select count(*) from gone

-- name: lock_unused_definitions
-- Of these pruned runs; not those locked by the creator of a run.
select l.digest from (
  select distinct p.definition_digest as digest from tenure.pruned p
  where p.seq = any($1::bigint[])) n, lateral (
  select d.digest from tenure.definitions d
  where d.digest = n.digest and (
    select 1 from tenure.run_specs s where s.definition_digest = d.digest limit 1) is null
  limit 1 for update skip locked) l

-- name: delete_unused_definitions
-- Locked before, so users of these texts have committed and are visible now.
delete from tenure.definitions d where d.digest = any($1::text[])
  and (select 1 from tenure.run_specs s where s.definition_digest = d.digest limit 1) is null

-- name: pruned
select seq from tenure.pruned where seq > $1 order by seq limit $2 for update skip locked

-- name: delete_some_journal
delete from tenure.journal where ctid = any(array(
  select l.ctid from unnest($1::bigint[]) u(seq), lateral (
    select ctid from tenure.journal where seq = u.seq limit $2) l limit $2))

-- name: delete_some_steps
delete from tenure.steps where ctid = any(array(
  select l.ctid from unnest($1::bigint[]) u(seq), lateral (
    select ctid from tenure.steps where seq = u.seq limit $2) l limit $2))

-- name: delete_some_tasks
delete from tenure.tasks where ctid = any(array(
  select l.ctid from unnest($1::bigint[]) u(seq), lateral (
    select ctid from tenure.tasks where seq = u.seq limit $2) l limit $2))

-- name: delete_some_deliveries
-- Rows locked by another transaction are left to the next prune.
delete from tenure.deliveries where ctid = any(array(
  select l.ctid from unnest($1::bigint[]) u(seq), lateral (
    select ctid from tenure.deliveries where seq = u.seq limit $2
    for update skip locked) l limit $2))

-- name: delete_some_log_chunks
delete from tenure.log_chunks where ctid = any(array(
  select l.ctid from unnest($1::bigint[]) u(seq), lateral (
    select ctid from tenure.log_chunks where seq = u.seq limit $2) l limit $2))

-- name: forget_pruned
-- Of runs without rows left: a row that was being changed was not deleted. Their text must be deleted
-- or used by another run.
delete from tenure.pruned p where p.seq = any($1::bigint[])
  and (select 1 from tenure.log_chunks where seq = p.seq limit 1) is null
  and (select 1 from tenure.deliveries where seq = p.seq limit 1) is null
  and (select 1 from tenure.journal where seq = p.seq limit 1) is null
  and (select 1 from tenure.steps where seq = p.seq limit 1) is null
  and (select 1 from tenure.tasks where seq = p.seq limit 1) is null
  and ((select 1 from tenure.definitions where digest = p.definition_digest limit 1) is null
    or (select 1 from tenure.run_specs where definition_digest = p.definition_digest limit 1) = 1)

-- name: count_runs
select count(*) from tenure.runs

-- name: bytes_used
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
from pg_class c where c.relnamespace = 'tenure'::regnamespace and c.relkind = 'r'

-- name: runs_without_spec
select count(*) from tenure.runs r
where not exists (select 1 from tenure.run_specs s where s.seq = r.seq)

-- name: runs_with_gaps
-- Versions count up from one.
select count(*) from tenure.runs r left join (
  select seq, count(*) as versions, max(version) as newest from tenure.journal group by seq) j
  on j.seq = r.seq
where (r.version, r.version) is distinct from (j.versions, j.newest)

-- name: specs_without_definition
select count(*) from tenure.run_specs s where s.definition_digest is not null
  and not exists (select 1 from tenure.definitions d where d.digest = s.definition_digest)

-- name: rows_without_run
-- Except those being pruned.
select count(distinct p.seq) from (
  select seq from tenure.run_specs union all select seq from tenure.run_labels union all
  select seq from tenure.steps union all select seq from tenure.tasks union all
  select seq from tenure.journal union all select seq from tenure.deliveries union all
  select seq from tenure.log_chunks) p
where not exists (select 1 from tenure.runs r where r.seq = p.seq)
  and not exists (select 1 from tenure.pruned n where n.seq = p.seq)

-- name: unused_definitions
-- Except those that a prune will remove.
select count(*) from tenure.definitions d
where not exists (select 1 from tenure.run_specs s where s.definition_digest = d.digest)
  and not exists (select 1 from tenure.pruned p where p.definition_digest = d.digest)

-- name: lock_all_unused_definitions
select d.digest from tenure.definitions d
where not exists (select 1 from tenure.run_specs s where s.definition_digest = d.digest)
for update skip locked

-- name: unfinished_prunes
select count(*) from tenure.pruned

-- name: add_token
insert into tenure.tokens (id, created_at, body) values ($1, tenure.clock(), $2::json)
on conflict (id) do nothing

-- name: add_first_token
insert into tenure.tokens (id, created_at, body)
select $1, tenure.clock(), $2::json where not exists (select from tenure.tokens)
on conflict (id) do nothing

-- name: token
select body::text, created_at, revoked_at from tenure.tokens where id = $1

-- name: tokens
select body::text, created_at, revoked_at from tenure.tokens order by number

-- name: lease_tokens
select u.run_id, r.token_fence, r.token_id from unnest($1::text[]) u(run_id),
  lateral (select * from tenure.runs where run_id = u.run_id limit 1) r
where r.token_id is not null

-- name: tokens_of_held
select seq from tenure.runs where seq = any($1::bigint[]) and token_id = $2 and token_fence = fence

-- name: bind_leases
update tenure.runs set token_id = $2, token_fence = fence where seq = any($1::bigint[])

-- name: token_secret
select secret from tenure.seal

-- name: revoke_token
update tenure.tokens set revoked_at = coalesce(revoked_at, tenure.clock()) where id = $1
returning body::text, created_at, revoked_at
