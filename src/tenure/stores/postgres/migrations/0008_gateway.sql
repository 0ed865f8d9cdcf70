-- By which token a run was last claimed through a gateway, and under which fence. (What gateways key
-- their ids with is the secret of the store, which is there.)

alter table tenure.runs add column token_id text collate "C", add column token_fence bigint;
