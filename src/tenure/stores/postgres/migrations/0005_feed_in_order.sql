-- The feed of all runs in its whole order: of a restored store one transaction has written everything,
-- and each page would sort all of it. (One pass over the journal; nobody can write meanwhile.)

drop index tenure.journal_by_change;
create index journal_by_change on tenure.journal (changed_in, seq, version);
