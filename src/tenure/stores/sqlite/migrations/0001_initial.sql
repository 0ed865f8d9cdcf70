-- Runs, steps and hosts as rows, so that an update touches only what changed.
-- Times are microseconds since 1970 (UTC); leases count nanoseconds of the machine's boot-time
-- clock and name their boot. A pending step or host has no row: the plan says that it exists.

create table runs (
  seq integer primary key autoincrement, -- short key for every child row; order and cursor of
                                        -- lists; of a run that was pruned never given again
  run_id text not null unique,
  workflow_name text not null,
  retry_root text,                       -- of a retry: the run that its chain of retries begins with
  status text not null,
  version integer not null,
  fence integer not null,
  owner_id text,
  claim_id text,
  lease_boot text,
  lease_until integer,
  lease_wall integer,                   -- the same moment as people are told
  takeovers integer not null,
  takeovers_without_progress integer not null,
  recovery text not null,
  queue text not null,
  rank integer not null,                -- minus priority: every claim order is then ascending
  ready_at integer not null,            -- when it could first run: run_after, else created_at
  readiness integer not null,           -- 0 none of a claimer's business, 1 ready, 2 waits for
                                        -- ready_at, 3 waits for approval
  cancel_requested_at integer,
  created_at integer not null,          -- never falls with seq
  started_at integer,
  finished_at integer,
  updated_at integer not null,
  counts text not null,
  detail text                           -- message, errors, annotations …; null while all unset
);
create unique index runs_active_retry on runs (retry_root)
  where retry_root is not null and status in ('queued', 'running');
create index runs_by_claim_order on runs (queue, rank, ready_at, seq) where readiness = 1;
create index runs_by_age on runs (queue, ready_at, seq) where readiness = 1;
create index runs_parked on runs (ready_at) where readiness = 2;
create index runs_held on runs (lease_boot, lease_until) where owner_id is not null;
create index runs_by_owner on runs (owner_id, claim_id) where owner_id is not null;
create index runs_orphaned on runs (seq)
  where owner_id is null and status = 'running' and recovery = 'interrupt';
create index runs_by_status on runs (status, seq);
create index runs_by_workflow on runs (workflow_name, status, seq);
create index runs_by_queue on runs (queue, status, seq);
create index runs_by_creation on runs (created_at);
create index runs_ended on runs (finished_at) where finished_at is not null;

-- Written once; the wide columns come last so that lists need not read them.
create table run_specs (
  seq integer primary key,
  definition_digest text,
  summary text not null,
  callbacks text,
  vars text,
  plan text not null
);
create index run_specs_by_definition on run_specs (definition_digest)
  where definition_digest is not null;

create table run_labels (
  key text not null,
  value text not null,
  seq integer not null,
  primary key (key, value, seq)
) without rowid;

create table definitions (
  digest text primary key,
  body text not null
) without rowid;

create table steps (
  seq integer not null,
  step integer not null,
  body text not null,
  added_hosts text,                     -- of a step that the plan did not know (a handler)
  primary key (seq, step)
) without rowid;

create table tasks (
  seq integer not null,
  step integer not null,
  host text not null,
  item integer not null,                -- -1: the host itself
  body text not null,
  primary key (seq, step, host, item)
) without rowid;

create table journal (
  seq integer not null,
  version integer not null,
  at integer not null,
  fence integer not null,
  update_id text not null,
  events text not null,
  primary key (seq, version)
) without rowid;

create table deliveries (
  number integer primary key,           -- order and cursor of lists
  id text not null unique,
  seq integer not null,
  target text not null,
  version integer not null,
  ordinal integer not null,
  run_status text not null,
  state text not null,
  blocked integer not null,             -- waits behind an earlier one of its run and target
  attempts integer not null,
  due_at integer not null,
  settled_at integer,
  died_at integer,
  redelivery integer not null,
  token text,
  settled_token text,
  rest_boot text,                       -- until when nobody may take it: a relay is at work, or
  rest_until integer,                   -- its next attempt is not due; null once that is over
  last_error text,
  event text not null
);
create index deliveries_due on deliveries (due_at, number)
  where state = 'waiting' and blocked = 0 and rest_boot is null;
create index deliveries_resting on deliveries (rest_boot, rest_until) where rest_boot is not null;
create index deliveries_in_order on deliveries (seq, target, version, ordinal)
  where state = 'waiting';
create index deliveries_held on deliveries (token) where token is not null;
create index deliveries_by_state on deliveries (state, number);
create index deliveries_of_run on deliveries (seq, number);
create index deliveries_dead on deliveries (seq, died_at) where died_at is not null;

-- Runs that are gone for everybody; some of their rows or their output may remain.
create table pruned (
  seq integer primary key,
  run_id text not null
);

-- How many runs have been claimed: of every ten the oldest goes first, whoever claims.
create table counters (
  name text primary key,
  value integer not null
) without rowid;
insert into counters (name, value) values ('claims', 0);

create table workers (
  owner_id text primary key,
  seen_boot text not null,
  seen_until integer not null,
  body text not null
) without rowid;
