-- Who may come through the gateway; of a token's secret only a digest is kept.

create table tokens (
  number integer primary key,
  id text not null unique,
  body text not null
);
