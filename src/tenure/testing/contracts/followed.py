"""A run in a store, and beside it what the model makes of the very same writes.

Whatever a store reads back is compared with that, whole: a field that is lost on the way, in the
record or in one of the lists, is seen whether or not anybody thought of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from tenure.model.decide import Circumstances, apply
from tenure.model.leases import ClaimedRun, claim, create, present, why_not_runnable
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary, summarize
from tenure.model.update import NewRun, Receipt, Update
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import claim_request, lease_request


class Listing(Protocol):
    """``list_runs`` and its like."""

    async def __call__(
        self, where: RunFilter = ..., *, limit: int = ..., cursor: str | None = ...
    ) -> Page[RunSummary]: ...


class FollowedRun:
    """One run. The moments come from the receipts of the store, everything else from the model."""

    def __init__(self, store: RunStateStore) -> None:
        self.seen: list[RunSnapshot] = []
        """Every state that was compared."""
        self._store = store
        self._expected = RunSnapshot(run_id="unborn", workflow_name="")
        self._lease_live = False

    async def begin(self, new: NewRun) -> RunSnapshot:
        """Under a long lease, or none."""
        return await self.look(await self._create(new))

    async def write(self, update: Update) -> RunSnapshot:
        receipt = await self._store.update_run(update)
        circumstances = Circumstances(lease_live=self._lease_live)
        self._expected = apply(
            self._expected, update, at=_moment(receipt), circumstances=circumstances
        ).snapshot
        self._lease_live = self._lease_live and self._expected.owner_id is not None
        return await self.look(receipt.lease_expires_at)

    async def look(self, lease_expires_at: datetime | None) -> RunSnapshot:
        """When its lease ends only the store can say; not every one has such an hour."""
        read = await self._store.get_run(self._expected.run_id)
        self._compare(read, lease_expires_at)
        await _check_listed(self._store.list_runs, read)
        self.seen.append(read)
        return read

    def _compare(self, read: RunSnapshot, lease_expires_at: datetime | None) -> None:
        assert read == present(
            self._expected, lease_live=self._lease_live, expires_at=lease_expires_at
        )

    async def _create(self, new: NewRun) -> datetime | None:
        receipt = await self._store.create_run(new)
        self._expected = create(new, _moment(receipt))
        self._lease_live = new.lease is not None
        return receipt.lease_expires_at


class FollowedOwnership(FollowedRun):
    """One that changes hands."""

    def __init__(self, store: LeasingStore, harness: ContractHarness) -> None:
        super().__init__(store)
        self._leasing = store
        self._harness = harness

    async def begin_and_lose_owner(self, new: NewRun) -> RunSnapshot:
        """Its first lease is a short one, and over when it is first looked at."""
        assert new.lease is not None
        brief = replace(new.lease, seconds=self._harness.lease_seconds)
        expires_at = await self._create(replace(new, lease=brief))
        await self._harness.expire_leases()
        self._lease_live = False
        return await self.look(expires_at)

    async def claim(self, owner_id: str) -> RunSnapshot:
        """Under a long lease."""
        run_id = self._expected.run_id
        return await self._taken(await self._leasing.claim_run(run_id, lease_request(owner_id)))

    async def claim_next(self, owner_id: str) -> RunSnapshot:
        """Under a long lease, as what its queue has to offer."""
        request = claim_request(owner_id, queues=(self._expected.queue,))
        (claimed,) = await self._leasing.claim_runs(request)
        return await self._taken(claimed)

    async def _taken(self, claimed: ClaimedRun) -> RunSnapshot:
        owner_id = claimed.lease.owner_id
        at = claimed.snapshot.updated_at
        assert at is not None
        self._expected = claim(self._expected, owner_id, at=at, lease_live=False).snapshot
        self._lease_live = True
        self._compare(claimed.snapshot, claimed.lease.expires_at)
        return await self.look(claimed.lease.expires_at)

    async def look(self, lease_expires_at: datetime | None) -> RunSnapshot:
        assert (lease_expires_at is None) == (self._expected.owner_id is None)
        read = await super().look(lease_expires_at)
        assert read.updated_at is not None
        if not self._lease_live and why_not_runnable(read, read.updated_at) is None:
            await _check_listed(self._leasing.list_runnable, read)
        return read


async def _check_listed(listing: Listing, read: RunSnapshot) -> None:
    """However it is found. A store may take another way for each question."""
    questions = [
        RunFilter(),
        RunFilter(statuses=frozenset({read.status})),
        RunFilter(workflow_name=read.workflow_name),
        RunFilter(queue=read.queue),
        RunFilter(labels=read.labels),
        RunFilter(created_from=read.created_at),
        RunFilter(owner_id=read.owner_id or "nobody"),
        RunFilter(held=True),
        RunFilter(canceling=True),
        RunFilter(unapproved=True),
    ]
    for where in questions:
        if where.matches(read):
            found = [each for each in (await listing(where)).items if each.run_id == read.run_id]
            assert found == [summarize(read)], where


def _moment(receipt: Receipt) -> datetime:
    assert receipt.updated_at is not None
    return receipt.updated_at
