"""``StoreClock``: what time it is for a store."""

from __future__ import annotations

from datetime import timedelta

from tenure.ports.store import StoreClock
from tenure.testing.contracts.acts import create
from tenure.testing.contracts.harness import ContractHarness, TimedStore


class StoreClockContract(ContractHarness):
    async def test_store_tells_the_time(self, store: TimedStore) -> None:
        assert isinstance(store, StoreClock)
        assert (await store.store_time()).utcoffset() == timedelta(0)

    async def test_it_is_the_clock_that_stamps_records(self, store: TimedStore) -> None:
        """Asked for anew each time: nobody learns an offset from what was heard a while ago."""
        before = await store.store_time()
        await self.pass_time(self.lease_seconds)
        run = await create(store)
        assert run.created_at is not None
        assert before < run.created_at <= await store.store_time()
