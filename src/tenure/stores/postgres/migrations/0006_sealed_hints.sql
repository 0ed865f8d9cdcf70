-- Anybody who can connect to the database can send hints. One that brings a run along is believed only
-- with a seal, which takes to read this table.

create table tenure.seal (
  secret text collate "C" not null
);
create unique index seal_is_one on tenure.seal ((true));
insert into tenure.seal (secret) values (gen_random_uuid()::text || gen_random_uuid()::text);

-- Whoever may create runs may seal them, as he could before this table was there.
do $$
declare creator regrole;
begin
  for creator in
    select distinct a.grantee from pg_class c, aclexplode(c.relacl) a
    where c.oid = 'tenure.runs'::regclass and a.privilege_type = 'INSERT'
      and a.grantee not in (0, c.relowner)
  loop
    execute format('grant select on tenure.seal to %s', creator);
  end loop;
end $$;

create function tenure.sealed(said text) returns text language sql stable
  as $$ select encode(sha256(convert_to(secret || encode(
    sha256(convert_to(secret || said, 'UTF8')), 'hex'), 'UTF8')), 'hex') from tenure.seal limit 1 $$;
