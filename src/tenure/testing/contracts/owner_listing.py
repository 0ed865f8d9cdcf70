"""``OwnerListing``: who has runs, and how many of them nobody keeps."""

from __future__ import annotations

from tenure.model.query import Ownership
from tenure.model.status import Recovery, RunStatus
from tenure.ports.leases import OwnerListing
from tenure.testing.contracts.acts import claim, create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness, OwnedStore
from tenure.testing.factories import cancel, end_run, fencing_of, unique

_RESUME, _INTERRUPT = Recovery.RESUME, Recovery.INTERRUPT


def _entry(owner_id: str | None, recovery: Recovery, runs: int, lost: int = 0) -> Ownership:
    return Ownership(owner_id=owner_id, recovery=recovery, runs=runs, lost=lost)


class OwnerListingContract(ContractHarness):
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
        """One that was claimed and has not begun is not: it waits for whoever comes next."""
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
