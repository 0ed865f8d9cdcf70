-- What nobody approved in time is looked for every few seconds: not among all that is queued.

create index runs_unapproved on runs (seq) where readiness = 3;
