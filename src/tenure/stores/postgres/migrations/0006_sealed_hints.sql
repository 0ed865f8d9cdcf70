-- Anybody who can connect to the database can send hints. One that brings a run along is believed only
-- with a seal, which takes to read this table.

create table tenure.seal (
  secret text collate "C" not null
);
insert into tenure.seal (secret) values (gen_random_uuid()::text || gen_random_uuid()::text);

create function tenure.sealed(said text) returns text language sql stable
  as $$ select encode(sha256(convert_to(secret || encode(
    sha256(convert_to(secret || said, 'UTF8')), 'hex'), 'UTF8')), 'hex') from tenure.seal limit 1 $$;
