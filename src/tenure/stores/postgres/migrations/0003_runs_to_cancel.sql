-- Asked to stop, and given back before that could be done: looked for every few seconds.

create index runs_to_cancel on tenure.runs (seq)
  where owner_id is null and finished_at is null and cancel_requested_at is not null;
