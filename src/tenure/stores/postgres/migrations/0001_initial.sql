-- Runs, steps and hosts as rows, so that an update touches only what changed. Bodies are JSON kept
-- as it was written. A pending step or host has no row: the plan says that it exists. No foreign
-- keys: the transactions keep the relations, and `tenure store check` looks at them.

-- The one clock that decides. (Simple enough to be inlined; tests put their own in its place.)
create function tenure.clock() returns timestamptz language sql volatile
  as $$ select clock_timestamp() $$;

create table tenure.runs (
  seq bigint generated always as identity primary key, -- short key for every child row; order and
                                                       -- cursor of lists
  run_id text collate "C" not null unique,
  workflow_name text collate "C" not null,
  retry_root text collate "C",           -- of a retry: the run that its chain of retries begins with
  status text not null,
  version bigint not null,
  fence bigint not null,
  owner_id text collate "C",
  claim_id text collate "C",
  lease_expires_at timestamptz,         -- in no index: renewals stay on their page
  takeovers integer not null,
  takeovers_without_progress integer not null,
  recovery text not null,
  queue text collate "C" not null,
  rank smallint not null,               -- minus priority: every claim order is then ascending
  ready_at timestamptz not null,        -- when it could first run: run_after, else created_at
  readiness smallint not null,          -- 0 none of a claimer's business, 1 ready, 2 waits for
                                        -- ready_at, 3 waits for approval
  approved boolean not null,            -- or needs no approval
  run_after timestamptz,
  cancel_requested_at timestamptz,
  created_at timestamptz not null,
  started_at timestamptz,
  finished_at timestamptz,
  updated_at timestamptz not null,
  changed_in xid8 not null default pg_current_xact_id(), -- that of its newest row in the journal
  counts json not null,
  detail json,                          -- message, errors, annotations …; null while all unset
  callback_error json                   -- apart: it changes without a new version
) with (fillfactor = 50); -- room for the next version of every row: those written together are
                         -- changed together
create unique index runs_active_retry on tenure.runs (retry_root)
  where retry_root is not null and status in ('queued', 'running');
create index runs_by_claim_order on tenure.runs (queue, rank, ready_at, seq) where readiness = 1;
create index runs_by_age on tenure.runs (queue, ready_at, seq) where readiness = 1;
create index runs_parked on tenure.runs (ready_at) where readiness = 2;
create index runs_unapproved on tenure.runs (seq) where readiness = 3;
-- Runs with an owner are few and change often: one index has them, and no other.
create index runs_by_owner on tenure.runs (owner_id, seq) where owner_id is not null;
create index runs_orphaned on tenure.runs (seq)
  where owner_id is null and status = 'running' and recovery = 'interrupt';
create index runs_by_status on tenure.runs (status, seq) where owner_id is null;
create index runs_by_workflow on tenure.runs (workflow_name, status, seq) where owner_id is null;
create index runs_by_queue on tenure.runs (queue, status, seq) where owner_id is null;
-- Some of them are enough to find out where among the others a time lies.
create index runs_by_creation on tenure.runs (created_at, seq) where seq % 64 = 0;
create index runs_ended on tenure.runs (finished_at, seq) where finished_at is not null;

-- Written once, and apart, so that the rows of runs stay narrow.
create table tenure.run_specs (
  seq bigint primary key,
  definition_digest text collate "C",
  summary json not null,
  callbacks json,
  vars json,
  plan json not null
);
create index run_specs_by_definition on tenure.run_specs (definition_digest)
  where definition_digest is not null;

create table tenure.run_labels (
  key text collate "C" not null,
  value text collate "C" not null,
  seq bigint not null,
  primary key (key, value, seq)
);
create index run_labels_of_run on tenure.run_labels (seq);

create table tenure.definitions (
  digest text collate "C" primary key,
  body json not null                    -- a JSON string: a text column would refuse some characters
);

create table tenure.steps (
  seq bigint not null,
  step integer not null,
  body json not null,
  added_hosts json,                     -- of a step that the plan did not know (a handler)
  primary key (seq, step)
) with (fillfactor = 50);

create table tenure.tasks (
  seq bigint not null,
  step integer not null,
  host text collate "C" not null,
  item integer not null,                -- -1: the host itself
  body json not null,
  primary key (seq, step, host, item)
) with (fillfactor = 40); -- a host's end says more than its start

create table tenure.journal (
  seq bigint not null,
  version bigint not null,
  at timestamptz not null,
  fence bigint not null,
  update_id text collate "C" not null,
  changed_in xid8 not null default pg_current_xact_id(), -- the transaction, or a later one if the
                                        -- version before has that: order of the feed of all runs
  events json not null,
  primary key (seq, version)
);
create index journal_by_change on tenure.journal (changed_in);

create table tenure.deliveries (
  number bigint generated always as identity primary key, -- order and cursor of lists
  id text collate "C" not null unique,
  seq bigint not null,
  target text collate "C" not null,
  version bigint not null,
  ordinal integer not null,
  origin text collate "C" not null,     -- whose they are: a relay finds those of all others at once
  run_status text not null,
  state text not null,
  blocked boolean not null,             -- waits behind an earlier one of its run and target: a hint
                                        -- that keeps it out of sight; claims look for themselves
  attempts integer not null,
  due_at timestamptz not null,
  held_until timestamptz,               -- a relay is at work until then
  settled_at timestamptz,
  died_at timestamptz,
  redelivery boolean not null,
  token text collate "C",
  settled_token text collate "C",
  last_error json,                      -- a JSON string
  event json not null
);
create index deliveries_due on tenure.deliveries (origin, due_at, number)
  where state = 'waiting' and not blocked;
create index deliveries_in_order on tenure.deliveries (seq, target, version, ordinal)
  where state = 'waiting';
create index deliveries_held on tenure.deliveries (token) where token is not null;
create index deliveries_by_state on tenure.deliveries (state, number);
create index deliveries_of_run on tenure.deliveries (seq, number);
create index deliveries_dead on tenure.deliveries (seq, died_at, number) where died_at is not null;

create table tenure.log_chunks (
  seq bigint not null,
  step integer not null,
  host text collate "C" not null,
  item integer not null,                -- -1: none
  attempt integer not null,
  stream text collate "C" not null,
  start bigint not null,
  fence bigint not null,
  data bytea not null,
  primary key (seq, step, host, item, attempt, stream, start)
);

-- Runs that are gone for everybody; some of their rows may remain.
create table tenure.pruned (
  seq bigint primary key
);

create table tenure.workers (
  owner_id text collate "C" primary key,
  seen_until timestamptz not null,
  body json not null
);
