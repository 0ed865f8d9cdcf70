-- Whose callbacks wait, so that a relay busy with one receiver finds those of all others at once.
-- What waits already belongs to no known origin: it is never left out.

alter table deliveries add column origin text not null default '';
drop index deliveries_due;
create index deliveries_due on deliveries (origin, due_at, number)
  where state = 'waiting' and blocked = 0 and rest_boot is null;
