"""Claiming many runs in one call."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tenure.model.leases import ClaimedRun
from tenure.model.snapshot import Approval
from tenure.model.status import Recovery, RunStatus
from tenure.testing.contracts.acts import claim, create, create_embedded, record_of
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import annotate, claim_request, end_run, fencing_of, unique


class ClaimsInBatches(ContractHarness):
    async def test_multiple_workers_share_a_workflow_store(self, store: LeasingStore) -> None:
        """Either worker can discover either run; each run has one owner."""
        run_ids = {(await create(store)).run_id for _ in range(2)}
        for _ in ("worker-1", "worker-2"):
            assert {item.run_id for item in (await store.list_runnable()).items} == run_ids
        (first,) = await store.claim_runs(claim_request("worker-1", limit=1))
        (second,) = await store.claim_runs(claim_request("worker-2", limit=10))
        assert {first.lease.run_id, second.lease.run_id} == run_ids

    async def test_claim_runs_gives_up_to_limit_with_lease_and_record(
        self, store: LeasingStore
    ) -> None:
        runs = [await create(store, vars={"n": number}) for number in range(3)]
        claimed = await store.claim_runs(claim_request("worker-1", limit=2))
        assert [one.lease.run_id for one in claimed] == [run.run_id for run in runs[:2]]
        for one in claimed:
            assert (one.lease.owner_id, one.lease.fence) == ("worker-1", 1)
            assert (one.snapshot.version, one.snapshot.takeovers) == (2, 0)
            assert record_of(await store.get_run(one.lease.run_id)) == record_of(one.snapshot)

    async def test_digest_that_comes_with_a_claim_stands_for_one_definition(
        self, store: LeasingStore
    ) -> None:
        """A store that does not tell says ``None``: it is then asked for each definition."""
        texts = ("one", "two", "one", None)
        runs = {(await create(store, definition=text)).run_id: text for text in texts}
        claimed = await store.claim_runs(claim_request("worker-1", limit=4))
        told = {(runs[one.lease.run_id], one.definition_digest) for one in claimed}
        assert (None, None) in told
        digests = [digest for _, digest in told if digest is not None]
        assert len(digests) in (0, len(set(texts)) - 1)
        assert len(digests) == len(set(digests))

    async def test_nothing_to_claim_is_an_empty_answer(self, store: LeasingStore) -> None:
        await create(store, approval=Approval(required=True))
        assert await store.claim_runs(claim_request(limit=5)) == []

    async def test_many_claimers_never_get_the_same_run(self, store: LeasingStore) -> None:
        run_ids = {(await create(store)).run_id for _ in range(50)}
        rounds = [
            store.claim_runs(claim_request(f"worker-{number % 4}", limit=7)) for number in range(20)
        ]
        claims = [one for answer in await asyncio.gather(*rounds) for one in answer]
        handed_out = [one.lease.run_id for one in claims]
        assert len(handed_out) == len(set(handed_out))
        # Claimers that met each other may have come away with less; the rest is still there.
        claims += await _claim_all(store)
        assert sorted(one.lease.run_id for one in claims) == sorted(run_ids)
        assert {one.lease.fence for one in claims} == {1}

    async def test_batch_claim_sent_again_returns_the_same_runs_and_no_others(
        self, store: LeasingStore
    ) -> None:
        for _ in range(5):
            await create(store)
        request = claim_request("worker-1", limit=2)
        first = await store.claim_runs(request)
        again = await store.claim_runs(request)
        assert _ids(again) == _ids(first)
        assert {one.lease.fence for one in again} == {1}
        assert len((await store.list_runnable()).items) == 3

    async def test_batch_claim_sent_again_renews_what_is_still_held(
        self, store: LeasingStore
    ) -> None:
        await create(store)
        request = claim_request("worker-1", seconds=self.lease_seconds)
        (first,) = await store.claim_runs(request)
        await self.expire_leases()
        (again,) = await store.claim_runs(request)
        assert again.lease.fence == first.lease.fence
        assert again.lease.expires_at > first.lease.expires_at
        assert await store.claim_runs(claim_request("worker-2")) == []

    async def test_batch_claim_sent_again_returns_only_what_is_still_held(
        self, store: LeasingStore
    ) -> None:
        for _ in range(5):
            await create(store)
        request = claim_request("worker-1", limit=3)
        ended, released, kept = await store.claim_runs(request)
        await store.update_run(end_run(ended.snapshot, RunStatus.FAILED))
        await store.release_lease(
            released.lease.run_id, fencing_of(released.snapshot), unique("release")
        )
        again = await store.claim_runs(request)
        assert _ids(again) == [kept.lease.run_id]

    async def test_batch_claim_sent_again_returns_the_record_as_it_is_now(
        self, store: LeasingStore
    ) -> None:
        run = await create(store)
        request = claim_request("worker-1")
        await store.claim_runs(request)
        await store.update_run(annotate(run, found="later"))
        (again,) = await store.claim_runs(request)
        assert len(again.snapshot.annotations) == 1

    async def test_only_the_given_queues_are_claimed(self, store: LeasingStore) -> None:
        wanted = {(await create(store, queue=name)).run_id for name in ("gpu", "cpu")}
        await create(store, queue="other")
        await create(store)
        claimed = await store.claim_runs(claim_request(limit=10, queues=("gpu", "cpu")))
        assert set(_ids(claimed)) == wanted
        assert await store.claim_runs(claim_request(limit=10, queues=())) == []

    async def test_what_is_not_runnable_is_left_alone(self, store: LeasingStore) -> None:
        now = (await create(store, queue="elsewhere")).created_at
        assert now is not None
        await create(store, approval=Approval(required=True))
        await create(store, run_after=now + timedelta(hours=1))
        await create_embedded(store, "worker-2", recovery=Recovery.RESUME)
        held = await create(store)
        await claim(store, held.run_id, "worker-2")
        runnable = await create(store)
        claimed = await store.claim_runs(claim_request("worker-1", limit=10))
        assert _ids(claimed) == [runnable.run_id]

    async def test_own_live_runs_are_not_handed_out_again(self, store: LeasingStore) -> None:
        """A second task of one process never gets the same run."""
        await create(store)
        assert len(await store.claim_runs(claim_request("worker-1", limit=5))) == 1
        assert await store.claim_runs(claim_request("worker-1", limit=5)) == []

    async def test_expired_leases_are_claimed_and_count_as_takeover(
        self, store: LeasingStore
    ) -> None:
        run = await create(store)
        await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        (taken,) = await store.claim_runs(claim_request("worker-2"))
        assert (taken.snapshot.fence, taken.snapshot.takeovers) == (2, 1)

    async def test_expired_leases_may_be_left_alone(self, store: LeasingStore) -> None:
        """A process that just started must not take what its owners may come back for."""
        expired, fresh = await create(store), await create(store)
        await claim(store, expired.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        careful = await store.claim_runs(claim_request("worker-2", limit=5, expired=False))
        assert _ids(careful) == [fresh.run_id]
        bold = await store.claim_runs(claim_request("worker-2", limit=5, expired=True))
        assert _ids(bold) == [expired.run_id]

    async def test_those_left_alone_keep_nothing_else_from_being_claimed(
        self, store: LeasingStore
    ) -> None:
        """However many they are, and though they come first."""
        for _ in range(3):
            run = await create(store, priority=5)
            await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        fresh = await create(store)
        await self.expire_leases()
        careful = await store.claim_runs(claim_request("worker-2", limit=2, expired=False))
        assert _ids(careful) == [fresh.run_id]

    async def test_lease_of_an_owner_proven_dead_counts_as_ended(self, store: LeasingStore) -> None:
        dead, alive = await create(store), await create(store)
        await claim(store, dead.run_id, "worker-dead")
        await claim(store, alive.run_id, "worker-alive")
        claimed = await store.claim_runs(
            claim_request(
                "worker-2", limit=5, expired=False, dead_owners=frozenset({"worker-dead"})
            )
        )
        assert _ids(claimed) == [dead.run_id]
        assert (claimed[0].snapshot.fence, claimed[0].snapshot.takeovers) == (2, 1)


async def _claim_all(store: LeasingStore) -> list[ClaimedRun]:
    claims: list[ClaimedRun] = []
    while answer := await store.claim_runs(claim_request("worker-last", limit=100)):
        claims += answer
    return claims


def _ids(claims: list[ClaimedRun]) -> list[str]:
    return [one.lease.run_id for one in claims]
