-- Which workflow text a pruned run used: whoever goes on with the prune removes it, if nobody else
-- uses it.

alter table tenure.pruned add column definition_digest text collate "C";
