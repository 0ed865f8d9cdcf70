"""Who is next: priority, then age, and no run starves."""

from __future__ import annotations

from tenure.testing.contracts.acts import create
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import claim_request


class ClaimOrder(ContractHarness):
    async def test_higher_priority_is_claimed_first_then_older(self, store: LeasingStore) -> None:
        priorities = [0, 100, -100, 100, 0]
        runs = [await create(store, priority=priority) for priority in priorities]
        claimed = await store.claim_runs(claim_request(limit=5))
        assert [one.lease.run_id for one in claimed] == [
            runs[index].run_id for index in (1, 3, 0, 4, 2)
        ]

    async def test_order_holds_over_several_queues(self, store: LeasingStore) -> None:
        low = await create(store, queue="gpu", priority=1)
        high = await create(store, queue="cpu", priority=2)
        claimed = await store.claim_runs(claim_request(limit=2, queues=("gpu", "cpu")))
        assert [one.lease.run_id for one in claimed] == [high.run_id, low.run_id]

    async def test_oldest_run_is_among_ten_claimed_one_by_one(self, store: LeasingStore) -> None:
        old = await _old_run_behind_thirty_urgent_ones(store)
        claimed = []
        for _ in range(10):
            claimed += await store.claim_runs(claim_request(limit=1))
        assert old in [one.lease.run_id for one in claimed]

    async def test_oldest_run_is_among_ten_claimed_in_one_batch(self, store: LeasingStore) -> None:
        old = await _old_run_behind_thirty_urgent_ones(store)
        claimed = await store.claim_runs(claim_request(limit=10))
        assert len(claimed) == 10
        assert old in [one.lease.run_id for one in claimed]

    async def test_only_every_tenth_claim_disregards_priority(self, store: LeasingStore) -> None:
        """Ten old runs of low priority wait; urgent ones still get nine places of ten."""
        old = {(await create(store, priority=-50)).run_id for _ in range(10)}
        for _ in range(30):
            await create(store, priority=50)
        claimed = []
        for _ in range(10):
            claimed += await store.claim_runs(claim_request(limit=2))
        assert len([one for one in claimed if one.lease.run_id in old]) == 2


async def _old_run_behind_thirty_urgent_ones(store: LeasingStore) -> str:
    old = await create(store, priority=-100)
    for _ in range(30):
        await create(store, priority=100)
    return old.run_id
