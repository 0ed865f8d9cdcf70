-- Journal rows in the order of their commits: the feed of all runs reads them by number. A number
-- is never given again, also if the newest run is pruned: whoever has read so far misses nothing.

create table journal_in_order (
  number integer primary key autoincrement,
  seq integer not null,
  version integer not null,
  at integer not null,
  fence integer not null,
  update_id text not null,
  events text not null
);
insert into journal_in_order (seq, version, at, fence, update_id, events)
  select seq, version, at, fence, update_id, events from journal order by at, seq, version;
drop table journal;
alter table journal_in_order rename to journal;
create unique index journal_of_run on journal (seq, version);
