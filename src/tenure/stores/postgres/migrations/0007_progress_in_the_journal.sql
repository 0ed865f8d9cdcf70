-- What a version changed of steps and hosts stands in its row of the journal, which is written anyway,
-- and nowhere else. What there is goes with the newest version of its run. (Each run is written once;
-- nobody else can write meanwhile.)

alter table tenure.journal add column progress text; -- JSON; null: nothing of them

update tenure.journal j
set progress = json_build_array(coalesce(p.steps, '[]'), coalesce(p.tasks, '[]'))::text
from (
  select n.seq, n.version, s.steps, t.tasks from tenure.runs r
  cross join lateral (
    select seq, version from tenure.journal where seq = r.seq order by version desc limit 1) n
  cross join lateral (
    select json_agg(json_build_array(step, body, added_hosts) order by step) as steps
    from tenure.steps where seq = r.seq) s
  cross join lateral (
    select json_agg(json_build_array(step, host, item, body) order by step, host, item) as tasks
    from tenure.tasks where seq = r.seq) t
  where s.steps is not null or t.tasks is not null
) p
where j.seq = p.seq and j.version = p.version;

drop table tenure.steps, tenure.tasks;
