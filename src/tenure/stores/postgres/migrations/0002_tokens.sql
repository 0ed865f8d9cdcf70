-- Who may come through the gateway; of a token's secret only a digest is kept.

create table tenure.tokens (
  number bigint generated always as identity unique,
  id text collate "C" primary key,
  created_at timestamptz not null,
  revoked_at timestamptz,
  body json not null
);
