"""``WorkerRegistry``, ``OwnerListing``, ``CensusTaking`` and ``TokenStore``."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from tenure.model.errors import LeaseHeld
from tenure.model.leases import LeaseToken
from tenure.model.query import Ownership
from tenure.model.status import TERMINAL_RUN, Recovery, RunStatus
from tenure.model.tokens import Role, Token, digest_of
from tenure.ports.leases import OwnerListing, WorkerInfo, WorkerRegistry
from tenure.ports.store import Census, CensusTaking, TokenStore
from tenure.testing.contracts.acts import claim, create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness, CountingStore, OwnedStore
from tenure.testing.factories import (
    HOOK,
    LONG,
    cancel,
    claim_request,
    end_run,
    fencing_of,
    lease_request,
    unique,
)


def _worker(owner_id: str = "worker-1", running: int = 0) -> WorkerInfo:
    return WorkerInfo(
        owner_id=owner_id,
        queues=("gpu", "default"),
        concurrency=4,
        running=running,
        details={"version": "1.0", "load": [0.5, None]},
    )


class WorkerRegistryContract(ContractHarness):
    """``WorkerRegistry``: live workers."""

    async def test_store_is_a_worker_registry(self, store: WorkerRegistry) -> None:
        assert isinstance(store, WorkerRegistry)

    async def test_nobody_is_there_at_first(self, store: WorkerRegistry) -> None:
        assert await store.list_workers() == []

    async def test_worker_is_listed_as_it_described_itself(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker(), LONG)
        (seen,) = await store.list_workers()
        assert seen.seen_at is not None
        assert replace(seen, seen_at=None) == _worker()

    async def test_worker_that_drains_says_so(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker(), LONG)
        await store.heartbeat(replace(_worker(), draining=True), LONG)
        (seen,) = await store.list_workers()
        assert seen.draining

    async def test_workers_are_listed_by_owner_id(self, store: WorkerRegistry) -> None:
        for owner_id in ("worker-2", "worker-10", "Worker-3", "worker-1"):
            await store.heartbeat(_worker(owner_id), LONG)
        owners = [worker.owner_id for worker in await store.list_workers()]
        assert owners == ["Worker-3", "worker-1", "worker-10", "worker-2"]

    async def test_next_heartbeat_replaces_the_last(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker(running=1), LONG)
        (first,) = await store.list_workers()
        await self.pass_time(0.01)
        await store.heartbeat(_worker(running=2), LONG)
        (second,) = await store.list_workers()
        assert second.running == 2
        assert first.seen_at is not None
        assert second.seen_at is not None
        assert second.seen_at > first.seen_at

    async def test_silent_worker_is_listed_no_more(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker("worker-1"), self.lease_seconds)
        await store.heartbeat(_worker("worker-2"), LONG)
        await self.expire_leases()
        assert [worker.owner_id for worker in await store.list_workers()] == ["worker-2"]

    async def test_worker_that_comes_back_is_listed_again(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker(), self.lease_seconds)
        await self.expire_leases()
        await store.heartbeat(_worker(), LONG)
        assert len(await store.list_workers()) == 1

    async def test_zero_seconds_take_the_entry_away(self, store: WorkerRegistry) -> None:
        await store.heartbeat(_worker("worker-1"), LONG)
        await store.heartbeat(_worker("worker-2"), LONG)
        await store.heartbeat(_worker("worker-1"), 0)
        assert [worker.owner_id for worker in await store.list_workers()] == ["worker-2"]

    async def test_values_share_nothing_with_the_store(self, store: WorkerRegistry) -> None:
        given = _worker()
        await store.heartbeat(given, LONG)
        given.details.clear()
        (seen,) = await store.list_workers()
        seen.details.clear()
        (again,) = await store.list_workers()
        assert again.details == _worker().details


_RESUME, _INTERRUPT = Recovery.RESUME, Recovery.INTERRUPT


def _entry(owner_id: str | None, recovery: Recovery, runs: int, lost: int = 0) -> Ownership:
    return Ownership(owner_id=owner_id, recovery=recovery, runs=runs, lost=lost)


class OwnerListingContract(ContractHarness):
    """``OwnerListing``: owners, with their runs and lost ones."""

    async def test_store_lists_owners(self, store: OwnedStore) -> None:
        assert isinstance(store, OwnerListing)

    async def test_nobody_has_runs_that_wait_or_have_ended(self, store: OwnedStore) -> None:
        await create(store)
        await write(store, end_run(await create_embedded(store), RunStatus.FAILED))
        assert await store.list_owners() == []

    async def test_each_owner_is_there_once_for_each_recovery(self, store: OwnedStore) -> None:
        for owner_id, recovery in (("a", _RESUME), ("a", _INTERRUPT), ("a", _RESUME)):
            await create_embedded(store, owner_id, recovery=recovery)
        await create_embedded(store, "b", recovery=_INTERRUPT)
        assert set(await store.list_owners()) == {
            _entry("a", _RESUME, 2),
            _entry("a", _INTERRUPT, 1),
            _entry("b", _INTERRUPT, 1),
        }

    async def test_run_under_way_whose_lease_is_over_is_lost(self, store: OwnedStore) -> None:
        """Not one that was claimed and has not begun: it is claimable."""
        await create_embedded(store, "a", seconds=self.lease_seconds, recovery=_INTERRUPT)
        queued = await create(store, recovery=_RESUME)
        await claim(store, queued.run_id, "a", seconds=self.lease_seconds)
        await self.expire_leases()
        await create_embedded(store, "a", recovery=_INTERRUPT)
        assert set(await store.list_owners()) == {
            _entry("a", _INTERRUPT, 2, lost=1),
            _entry("a", _RESUME, 1),
        }

    async def test_runs_that_were_asked_to_stop_are_counted(self, store: OwnedStore) -> None:
        run = await create_embedded(store, "a", recovery=_RESUME)
        await create_embedded(store, "a", recovery=_RESUME)
        await store.update_run(cancel(run))
        (entry,) = await store.list_owners()
        assert (entry.runs, entry.canceling) == (2, 1)

    async def test_given_back_and_not_to_be_resumed_is_nobodys(self, store: OwnedStore) -> None:
        for recovery in (_INTERRUPT, _RESUME):
            run = await create_embedded(store, "a", recovery=recovery)
            await store.release_lease(run.run_id, fencing_of(run), unique("release"))
        assert await store.list_owners() == [_entry(None, _INTERRUPT, 1, lost=1)]


class CensusContract(ContractHarness):
    """``CensusTaking``: exact counts up to a limit."""

    async def test_store_takes_a_census(self, store: CountingStore) -> None:
        assert isinstance(store, CensusTaking)

    async def test_empty_store_has_nothing_to_do(self, store: CountingStore) -> None:
        assert await store.take_census() == Census(
            runs=dict.fromkeys(RunStatus, 0), callbacks_waiting=0, callbacks_dead=0, queues=()
        )

    async def test_runs_are_counted_by_their_status(self, store: CountingStore) -> None:
        for _ in range(3):
            await create(store)
        running = await create_embedded(store)
        for status in sorted(TERMINAL_RUN):
            await write(store, end_run(await create_embedded(store), status))
        wanted = {RunStatus.QUEUED: 3, RunStatus.RUNNING: 1, **dict.fromkeys(TERMINAL_RUN, 1)}
        assert (await store.take_census()).runs == wanted
        await write(store, end_run(running, RunStatus.FAILED))
        wanted |= {RunStatus.RUNNING: 0, RunStatus.FAILED: 2}
        assert (await store.take_census()).runs == wanted

    async def test_queue_is_as_long_as_what_could_be_claimed(self, store: CountingStore) -> None:
        for queue in ("gpu", "default", "gpu", "gpu"):
            await create(store, queue=queue)
        lengths = {each.queue: each.runs for each in (await store.take_census()).queues}
        assert lengths == {"default": 1, "gpu": 3}
        await store.claim_runs(claim_request(queues=("gpu",), limit=2))
        lengths = {each.queue: each.runs for each in (await store.take_census()).queues}
        assert lengths == {"default": 1, "gpu": 1}

    async def test_age_is_that_of_the_oldest(self, store: CountingStore) -> None:
        await create(store)
        await self.pass_time(0.2)
        await create(store)
        (waiting,) = (await store.take_census()).queues
        assert 0.2 <= waiting.oldest_seconds < 60

    async def test_callbacks_wait_until_they_are_settled(self, store: CountingStore) -> None:
        await create(store, callbacks=(HOOK,))
        found = await store.take_census()
        assert (found.callbacks_waiting, found.callbacks_dead) == (1, 0)

    async def test_nothing_is_counted_further_than_asked(self, store: CountingStore) -> None:
        await asyncio.gather(*(create(store, queue=f"queue-{i % 3}") for i in range(12)))
        found = await store.take_census(most=2)
        assert found.runs[RunStatus.QUEUED] == 2
        assert [each.runs for each in found.queues] == [2, 2]


LATER = datetime(2090, 1, 1, tzinfo=UTC)


def _token(id: str = "t1", words: str = "opensesame") -> Token:
    return Token(
        id=id,
        name=f"the one called {id}",
        role=Role.OPERATOR,
        digest=digest_of(words),
        queues=("default", "gpu"),
        expires_at=LATER,
    )


_TOKEN, _OTHER = "one", "other"


class TokenStoreContract(ContractHarness):
    """``TokenStore``: the gateway's tokens."""

    async def test_store_is_a_token_store(self, store: TokenStore) -> None:
        assert isinstance(store, TokenStore)

    async def test_there_are_none_at_first(self, store: TokenStore) -> None:
        assert await store.list_tokens() == []

    async def test_token_is_kept_as_it_was_given_and_stamped(self, store: TokenStore) -> None:
        added = await store.add_token(_token())
        assert added.created_at is not None
        assert added.created_at.tzinfo is not None
        assert (added.name, added.role, added.digest) == (
            "the one called t1",
            Role.OPERATOR,
            digest_of("opensesame"),
        )
        assert (added.queues, added.expires_at, added.revoked_at) == (
            ("default", "gpu"),
            LATER,
            None,
        )
        assert await store.list_tokens() == [added]

    async def test_tokens_are_listed_in_the_order_of_their_birth(self, store: TokenStore) -> None:
        for id in ("t2", "t10", "t1"):
            await store.add_token(_token(id))
        assert [token.id for token in await store.list_tokens()] == ["t2", "t10", "t1"]

    async def test_id_that_is_there_keeps_its_token(self, store: TokenStore) -> None:
        first = await store.add_token(_token())
        assert await store.add_token(_token(words="another")) == first
        assert await store.list_tokens() == [first]

    async def test_first_token_is_kept_if_there_is_none(self, store: TokenStore) -> None:
        assert await store.add_first_token(_token("first"))
        assert await store.add_first_token(_token("first")), "sent again"
        (kept,) = await store.list_tokens()
        assert (kept.id, kept.digest) == ("first", digest_of("opensesame"))
        assert kept.created_at is not None
        assert not await store.add_first_token(_token("first", words="another"))
        assert not await store.add_first_token(_token("t2"))
        assert await store.list_tokens() == [kept]

    async def test_no_token_is_first_after_a_revoked_one(self, store: TokenStore) -> None:
        await store.add_token(_token())
        await store.revoke_token("t1")
        assert not await store.add_first_token(_token("first"))
        assert [token.id for token in await store.list_tokens()] == ["t1"]

    async def test_of_several_at_once_one_is_first(self, store: TokenStore) -> None:
        words = [f"secret {number}" for number in range(5)]
        added = await asyncio.gather(
            *(store.add_first_token(_token("first", words=each)) for each in words)
        )
        assert sorted(added) == [False] * 4 + [True]
        (kept,) = await store.list_tokens()
        assert kept.digest == digest_of(words[added.index(True)])

    async def test_revoked_token_is_listed_as_such(self, store: TokenStore) -> None:
        await store.add_token(_token("t1"))
        other = await store.add_token(_token("t2"))
        revoked = await store.revoke_token("t1")
        assert revoked is not None
        assert revoked.revoked_at is not None
        assert await store.list_tokens() == [revoked, other]

    async def test_revoking_again_changes_nothing(self, store: TokenStore) -> None:
        await store.add_token(_token())
        revoked = await store.revoke_token("t1")
        await self.pass_time(0.01)
        assert await store.revoke_token("t1") == revoked
        assert await store.list_tokens() == [revoked]

    async def test_lease_is_kept_with_the_token_that_claimed_it(self, store: OwnedStore) -> None:
        assert isinstance(store, TokenStore)
        one, other, direct = [await create(store) for _ in range(3)]
        for run, token in ((one, _TOKEN), (other, _OTHER), (direct, None)):
            request = replace(lease_request("worker-1"), token_id=token)
            await store.claim_run(run.run_id, request)
        asked = [one.run_id, other.run_id, direct.run_id, "run-unknown"]
        bound = {one.run_id: LeaseToken(1, _TOKEN), other.run_id: LeaseToken(1, _OTHER)}
        assert await store.lease_tokens(asked) == bound
        assert await store.lease_tokens([]) == {}

    async def test_lease_of_one_token_is_not_claimed_again_with_another(
        self, store: OwnedStore
    ) -> None:
        """Whatever owner it names; and a run that was released is free for all."""
        assert isinstance(store, TokenStore)
        run = await create(store)
        request = replace(claim_request("worker-1"), token_id=_TOKEN)
        (held,) = await store.claim_runs(request)
        again = replace(lease_request("worker-1"), token_id=_OTHER)
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, again)
        assert await store.claim_runs(replace(request, token_id=_OTHER)) == []
        for mine in (replace(again, token_id=_TOKEN), replace(again, token_id=None)):
            renewed = await store.claim_run(run.run_id, mine)
            assert renewed.lease.fence == held.lease.fence
        assert await store.lease_tokens([run.run_id]) == {run.run_id: LeaseToken(1, _TOKEN)}
        await store.release_lease(run.run_id, held.lease.fencing, unique("release"))
        assert (await store.claim_run(run.run_id, again)).lease.fence == 2
        assert await store.lease_tokens([run.run_id]) == {run.run_id: LeaseToken(2, _OTHER)}

    async def test_secret_stays_the_same(self, store: TokenStore) -> None:
        secret = await store.token_secret()
        assert len(secret) >= 16
        assert await store.token_secret() == secret

    async def test_unknown_token_cannot_be_revoked(self, store: TokenStore) -> None:
        await store.add_token(_token())
        assert await store.revoke_token("t2") is None
        (token,) = await store.list_tokens()
        assert token.revoked_at is None
