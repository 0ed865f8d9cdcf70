-- Every statement of the SQLite store, by name. Fragments in braces are in rows.py.

-- name: head_by_id
select {head} from runs r where r.run_id = ?

-- name: head_by_seq
select {head} from runs r where r.seq = ?

-- name: data_version
-- Changes when another connection has committed.
pragma data_version

-- name: mark
-- Shows whether a run has changed since this process wrote it.
select version, updated_at, fence, detail, claim_id, lease_boot, lease_until, lease_wall
from runs where seq = ?

-- name: versions_by_id
select json_group_object(r.run_id, r.version)
from json_each(?) each cross join runs r on r.run_id = each.value

-- name: seq_of_run
select seq from runs where run_id = ?

-- name: seqs_by_id
select json_group_object(r.run_id, r.seq)
from json_each(?) each cross join runs r on r.run_id = each.value

-- name: newest_created_at
select created_at from runs order by seq desc limit 1

-- name: insert_run
insert into runs (run_id, workflow_name, retry_root, status, version, fence, owner_id, claim_id, lease_boot,
  lease_until, lease_wall, takeovers, takeovers_without_progress, recovery, queue, rank, ready_at,
  readiness, cancel_requested_at, created_at, started_at, finished_at, updated_at, counts, detail)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (run_id) do nothing
returning seq

-- name: retry_root
select coalesce(retry_root, run_id) from runs where run_id = ?

-- name: active_retry
select run_id, status, readiness = 3 from runs
where retry_root = ? and retry_root is not null and status in ('queued', 'running')

-- name: update_run
update runs set status = ?, version = ?, fence = ?, owner_id = ?, claim_id = ?, lease_boot = ?,
  lease_until = ?, lease_wall = ?, takeovers = ?, takeovers_without_progress = ?, readiness = ?,
  cancel_requested_at = ?, started_at = ?, finished_at = ?, updated_at = ?, counts = ?, detail = ?
where seq = ?

-- name: update_progress
-- Names no column of any index.
update runs set version = ?, takeovers_without_progress = ?, cancel_requested_at = ?,
  updated_at = ?, counts = ?, detail = ?
where seq = ?

-- name: insert_spec
insert into run_specs (seq, definition_digest, summary, callbacks, vars, plan)
values (?, ?, ?, ?, ?, ?)

-- name: spec_for_lists
select summary from run_specs where seq = ?

-- name: summary_by_seq
select {head}, s.summary from runs r join run_specs s on s.seq = r.seq where r.seq = ?

-- name: run_by_id
select {head}, s.summary, s.callbacks, s.vars, s.plan
from runs r join run_specs s on s.seq = r.seq where r.run_id = ?

-- name: run_by_seq
select {head}, s.summary, s.callbacks, s.vars, s.plan
from runs r join run_specs s on s.seq = r.seq where r.seq = ?

-- name: definition_digest
select definition_digest from run_specs where seq = ?

-- name: plan
select plan from run_specs where seq = ?

-- name: callbacks
select callbacks from run_specs where seq = ?

-- name: insert_label
insert into run_labels (key, value, seq) values (?, ?, ?)

-- name: insert_definition
insert into definitions (digest, body) values (?, ?) on conflict (digest) do nothing

-- name: definition
select d.body from runs r
  join run_specs s on s.seq = r.seq
  left join definitions d on d.digest = s.definition_digest
where r.run_id = ?

-- name: steps_of_run
select step, body, added_hosts from steps where seq = ? order by step

-- name: put_step
insert into steps (seq, step, body, added_hosts) values (?, ?, ?, ?)
on conflict (seq, step) do update set body = excluded.body

-- name: host
select body from tasks where seq = ? and step = ? and host = ? and item = -1

-- name: tasks_of_run
select step, host, item, body from tasks where seq = ? order by step, host, item

-- name: put_task
insert into tasks (seq, step, host, item, body) values (?, ?, ?, ?, ?)
on conflict (seq, step, host, item) do update set body = excluded.body

-- name: update_id_of
select update_id from journal where seq = ? and version = ?

-- name: insert_journal
insert into journal (seq, version, at, fence, update_id, events) values (?, ?, ?, ?, ?, ?)

-- name: journal_after
select version, at, fence, events from journal where seq = ? and version >= ? order by version

-- name: changes_after
-- Without runs that are being pruned.
select j.number, r.run_id, j.version, j.at, j.fence, j.events
from journal j cross join runs r on r.seq = j.seq
where j.number > ? order by j.number limit ?

-- name: newest_change
select coalesce(max(number), 0) from journal

-- name: runs_by_status
-- Counts up to ?1, in the index alone.
select each.value,
  (select count(*) from (select 1 from runs r where r.status = each.value limit ?1))
from json_each(?2) each

-- name: census
select (select count(*) from (select 1 from deliveries where state = 'waiting' limit ?1)),
  (select count(*) from (select 1 from deliveries where state = 'dead' limit ?1))

-- name: queue_lengths
-- One index look-up per queue, not one per run.
with recursive queues (queue) as (
  select * from (select queue from runs where readiness = 1 order by queue limit 1)
  union all
  select (select r.queue from runs r where r.readiness = 1 and r.queue > q.queue
    order by r.queue limit 1)
  from queues q where q.queue is not null
)
select q.queue,
  (select count(*) from (select 1 from runs r where r.readiness = 1 and r.queue = q.queue
    limit ?1)),
  (select r.ready_at from runs r where r.readiness = 1 and r.queue = q.queue
    order by r.ready_at limit 1)
from queues q where q.queue is not null limit ?1

-- name: promote_parked
-- Runs whose run_after has passed become ready.
update runs set readiness = 1 where readiness = 2 and ready_at <= ?

-- name: next_ready_queue
select queue from runs where readiness = 1 and queue > ? order by queue limit 1

-- name: ready_by_priority
select seq, rank, ready_at from runs
where readiness = 1 and queue = ? order by rank, ready_at, seq

-- name: ready_by_age
select seq, rank, ready_at from runs
where readiness = 1 and queue = ? order by ready_at, seq

-- name: parked_due
select seq, rank, ready_at from runs where readiness = 2 and ready_at <= ?

-- name: expired_resumable
-- For workers: leases of this boot that have ended, and those of other boots.
select seq, rank, ready_at, queue from runs
where owner_id is not null and lease_boot = ?1 and lease_until <= ?2 and (status = 'queued' or recovery = 'resume')
union all
select seq, rank, ready_at, queue from runs
where owner_id is not null and lease_boot < ?1 and (status = 'queued' or recovery = 'resume')
union all
select seq, rank, ready_at, queue from runs
where owner_id is not null and lease_boot > ?1 and (status = 'queued' or recovery = 'resume')

-- name: expired_to_end
-- For reconcile: leases of this boot that have ended, and those of other boots.
select seq, rank, ready_at, queue from runs
where owner_id is not null and lease_boot = ?1 and lease_until <= ?2
  and (recovery = 'interrupt' or cancel_requested_at is not null)
union all
select seq, rank, ready_at, queue from runs
where owner_id is not null and lease_boot < ?1
  and (recovery = 'interrupt' or cancel_requested_at is not null)
union all
select seq, rank, ready_at, queue from runs
where owner_id is not null and lease_boot > ?1
  and (recovery = 'interrupt' or cancel_requested_at is not null)

-- name: leases_of_owner
select seq, rank, ready_at, queue from runs where owner_id = ?

-- name: to_end_of_owner
-- For reconcile: runs of a dead owner.
select seq, rank, ready_at, queue from runs
where owner_id = ? and (recovery = 'interrupt' or cancel_requested_at is not null)

-- name: orphaned
-- For reconcile: released by the owner, and either running and not resumable, or canceled.
select seq, rank, ready_at from runs
where owner_id is null and status = 'running' and recovery = 'interrupt'
union
select seq, rank, ready_at from runs indexed by runs_to_cancel
where owner_id is null and finished_at is null and cancel_requested_at is not null
order by seq

-- name: claims_made
select value from counters where name = 'claims'

-- name: count_claims
update counters set value = value + ? where name = 'claims'

-- name: held_under_claim
select seq, token_id from runs where owner_id = ? and claim_id = ? order by rank, ready_at, seq

-- name: renew_lease
update runs set lease_boot = ?, lease_until = ?, lease_wall = ? where seq = ?

-- name: renewal_facts
select seq, lease_boot, lease_until, lease_wall, cancel_requested_at, version from runs
where run_id = ? and owner_id = ? and fence = ?

-- name: ownership
select seq, fence, owner_id from runs where run_id = ?

-- name: set_detail
update runs set detail = ? where seq = ?

-- name: insert_delivery
-- Blocked if an earlier one of the same run and target waits.
insert into deliveries (id, seq, target, version, ordinal, run_status, state, blocked, attempts,
  due_at, redelivery, event, origin)
values (?1, ?2, ?3, ?4, ?5, ?6, 'waiting',
  exists (select 1 from deliveries where state = 'waiting' and seq = ?2 and target = ?3),
  0, ?7, 0, ?8, ?9)

-- name: end_rests
-- At most ?3 of those past their end or of another boot.
update deliveries set rest_boot = null, rest_until = null where number in (
  select number from deliveries
  where (rest_boot = ?1 and rest_until <= ?2) or rest_boot < ?1 or rest_boot > ?1 limit ?3)

-- name: renew_held_deliveries
-- For a claim that is repeated because its answer was lost.
update deliveries indexed by deliveries_held set rest_boot = ?, rest_until = ?
where token = ? and state = 'waiting'

-- name: origins_due
-- At most ?2 from ?1 on; one index look-up per origin.
with recursive origins (origin) as (
  select min(origin) from deliveries indexed by deliveries_due
  where state = 'waiting' and blocked = 0 and rest_boot is null and origin >= ?1
  union all
  select (
    select min(origin) from deliveries indexed by deliveries_due
    where state = 'waiting' and blocked = 0 and rest_boot is null and origin > origins.origin)
  from origins where origins.origin is not null
  limit ?2)
select json_group_array(origin) from origins where origin is not null

-- name: hold_due_deliveries
-- At most ?5 of each of these origins. Only the first of its run and target; not while another of
-- them (sent before a redelivery) is in flight.
update deliveries set token = ?1, rest_boot = ?2, rest_until = ?3
where number in (
  select d.number from json_each(?4) o join deliveries d on d.number in (
    select number from deliveries f indexed by deliveries_due
    where state = 'waiting' and blocked = 0 and rest_boot is null and origin = o.value
      and not exists (
        select 1 from deliveries e
        where e.state = 'waiting' and e.seq = f.seq and e.target = f.target
          and e.token is not null and e.rest_boot is not null)
    order by due_at, number limit ?5)
  order by due_at, number limit ?6)

-- name: hold_named_deliveries
-- As above, for these ids and without the origins ?7.
update deliveries set token = ?1, rest_boot = ?2, rest_until = ?3
where number in (
  select number from (
    select number, due_at, row_number() over (partition by origin order by due_at, number) as place
    from deliveries d
    where id in (select value from json_each(?4)) and +state = 'waiting' and blocked = 0
      and +rest_boot is null and origin not in (select value from json_each(?7))
      and not exists (
        select 1 from deliveries e
        where e.state = 'waiting' and e.seq = d.seq and e.target = d.target
          and e.token is not null and e.rest_boot is not null))
  where place <= ?5 order by due_at, number limit ?6)

-- name: held_deliveries
select json_group_array({delivery} order by d.due_at, d.number) from {delivery_tables}
where d.token = ? and +d.state = 'waiting'

-- name: unblock_heads
-- The first waiting one of each [seq, target].
update deliveries set blocked = 0 where blocked and number in (
  select (
    select number from deliveries
    where state = 'waiting' and seq = each.value ->> 0 and target = each.value ->> 1
    order by version, ordinal limit 1)
  from json_each(?) each)

-- name: block_all_but_head
update deliveries set blocked = number <> (
    select number from deliveries where state = 'waiting' and seq = ?1 and target = ?2
    order by version, ordinal limit 1)
where state = 'waiting' and seq = ?1 and target = ?2

-- name: put_deliveries
-- Each value: the number, the token the row must still have, then the columns in this order.
update deliveries set state = value ->> 2, attempts = value ->> 3, due_at = value ->> 4,
  settled_at = value ->> 5, died_at = value ->> 6, redelivery = value ->> 7, token = value ->> 8,
  settled_token = value ->> 9, last_error = value ->> 10, rest_boot = value ->> 11,
  rest_until = value ->> 12
from json_each(?) where number = value ->> 0 and token is value ->> 1

-- name: deliveries_by_id
select json_group_array({delivery}) from {delivery_tables}
where d.id in (select value from json_each(?))

-- name: newest_dead_letter
select {delivery} from {delivery_tables}
where d.seq = ? and d.died_at is not null
order by d.died_at desc, d.number desc limit 1

-- name: put_worker
insert into workers (owner_id, seen_boot, seen_until, body) values (?, ?, ?, ?)
on conflict (owner_id) do update set
  seen_boot = excluded.seen_boot, seen_until = excluded.seen_until, body = excluded.body

-- name: forget_silent_workers
delete from workers where seen_boot <> ? or seen_until <= ?

-- name: owners
-- Runs by owner and recovery; how many are running without a live lease, and how many are canceled.
select owner_id, recovery, count(*), sum(status = 'running' and not (lease_boot = ?1 and lease_until > ?2)),
  count(cancel_requested_at)
from runs indexed by runs_by_owner where owner_id is not null group by owner_id, recovery
union all
select null, 'interrupt', count(*), count(*), count(cancel_requested_at) from runs indexed by runs_orphaned
where owner_id is null and status = 'running' and recovery = 'interrupt' having count(*) > 0

-- name: workers
select body from workers where seen_boot = ? and seen_until > ? order by owner_id

-- name: prunable
-- Ended before this time, oldest first; not while a callback waits.
select r.seq from runs r
where r.finished_at < ?
  and not exists (select 1 from deliveries d where d.state = 'waiting' and d.seq = r.seq)
order by r.finished_at, r.seq limit ?

-- name: what_to_prune
-- No row if the run is gone or a callback of it waits again.
select r.run_id, s.definition_digest, s.summary from runs r join run_specs s on s.seq = r.seq
where r.seq = ?1
  and not exists (select 1 from deliveries d where d.state = 'waiting' and d.seq = ?1)

-- name: note_pruned
insert into pruned (seq, run_id) values (?, ?)

-- name: pruned
select seq, run_id from pruned order by seq

-- name: forget_pruned
delete from pruned where seq = ?

-- name: delete_run
delete from runs where seq = ?

-- name: delete_spec
delete from run_specs where seq = ?

-- name: delete_label
delete from run_labels where key = ? and value = ? and seq = ?

-- name: delete_unused_definition
delete from definitions where digest = ?1
  and not exists (select 1 from run_specs s where s.definition_digest = ?1)

-- name: delete_some_deliveries
delete from deliveries where number in (select number from deliveries where seq = ? limit ?)

-- name: delete_some_journal
delete from journal where number in (select number from journal where seq = ? limit ?)

-- name: delete_some_steps
delete from steps where seq = ?1 and step in (select step from steps where seq = ?1 limit ?2)

-- name: delete_some_tasks
delete from tasks where seq = ?1 and (step, host, item) in (
  select step, host, item from tasks where seq = ?1 limit ?2)

-- name: count_runs
select count(*) from runs

-- name: run_exists
select 1 from runs where seq = ?

-- name: runs_without_spec
select count(*) from runs r where not exists (select 1 from run_specs s where s.seq = r.seq)

-- name: runs_without_journal
select count(*) from runs r
where not exists (select 1 from journal j where j.seq = r.seq and j.version = r.version)

-- name: specs_without_definition
select count(*) from run_specs s where s.definition_digest is not null
  and not exists (select 1 from definitions d where d.digest = s.definition_digest)

-- name: rows_without_run
-- Except those being pruned.
select count(distinct seq) from (
  select seq from run_specs union all select seq from run_labels union all
  select seq from steps union all select seq from tasks union all
  select seq from journal union all select seq from deliveries)
where seq not in (select seq from runs) and seq not in (select seq from pruned)

-- name: add_token
insert into tokens (id, body) values (?, ?) on conflict (id) do nothing

-- name: add_first_token
insert into tokens (id, body) select ?, ? where not exists (select 1 from tokens)

-- name: token
select body from tokens where id = ?

-- name: tokens
select body from tokens order by number

-- name: change_token
update tokens set body = ? where id = ?

-- name: lease_token
select token_fence, token_id from runs where seq = ?

-- name: bind_lease
update runs set token_id = ?, token_fence = ? where seq = ?

-- name: lease_tokens
select r.run_id, r.token_fence, r.token_id from json_each(?) i cross join runs r
where r.run_id = i.value and r.token_id is not null

-- name: token_secret
select value from secrets
