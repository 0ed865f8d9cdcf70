-- By which token a run was last claimed through a gateway, and under which fence; and what gateways key
-- their ids with.

alter table runs add column token_id text;
alter table runs add column token_fence integer;

create table secrets (
  value blob not null
);
insert into secrets (value) values (randomblob(32));
