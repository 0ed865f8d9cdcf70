"""Keeping a lease, and giving it back."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenure.model.errors import LeaseHeld, LeaseLost, RunNotFound
from tenure.model.status import RunStatus
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    claim,
    create,
    create_embedded,
    lease_of,
    record_of,
    write,
)
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import (
    LONG,
    cancel,
    end_run,
    fencing_of,
    lease_request,
    operator_status,
    start_run,
    start_step,
    unique,
)


class Renewals(ContractHarness):
    async def test_worker_renews_a_lease(self, store: LeasingStore) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=600)
        (renewal,) = await store.renew_leases([lease_of(held)], 1200)
        assert renewal.ok
        assert renewal.expires_at is not None
        assert renewal.expires_at - lease_of(held).expires_at > timedelta(seconds=500)
        assert (renewal.run_id, renewal.version) == (run.run_id, held.version)
        assert record_of(await store.get_run(run.run_id)) == record_of(held)

    async def test_renewed_lease_outlives_its_first_end(self, store: LeasingStore) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await store.renew_leases([lease_of(held)], LONG)
        await self.expire_leases()
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-2"))
        assert (await store.list_runnable()).items == ()

    async def test_renewal_never_shortens_a_lease(self, store: LeasingStore) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=LONG)
        (renewal,) = await store.renew_leases([lease_of(held)], self.lease_seconds)
        assert renewal.ok
        assert renewal.expires_at is not None
        assert abs(renewal.expires_at - lease_of(held).expires_at) < timedelta(seconds=1)
        await self.expire_leases()
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-2"))

    async def test_renewal_answers_each_lease_in_order(self, store: LeasingStore) -> None:
        runs = [await claim(store, (await create(store)).run_id) for _ in range(4)]
        await store.update_run(end_run(runs[0], RunStatus.FAILED))
        leases = [
            lease_of(runs[0]),
            lease_of(runs[1]),
            replace(lease_of(runs[2]), owner_id="pretender"),
            replace(lease_of(runs[2]), fence=99),
            *(replace(lease_of(runs[2]), run_id=name) for name in UNKNOWN_RUN_IDS),
            lease_of(runs[3]),
        ]
        renewals = await store.renew_leases(leases, LONG)
        lost = [False] * (2 + len(UNKNOWN_RUN_IDS))
        assert [renewal.ok for renewal in renewals] == [False, True, *lost, True]
        assert [one.run_id for one in renewals] == [lease.run_id for lease in leases]

    async def test_renewing_nothing_answers_nothing(self, store: LeasingStore) -> None:
        assert await store.renew_leases([], LONG) == []

    async def test_renewal_carries_the_cancel_request(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id)
        (before,) = await store.renew_leases([lease_of(held)], LONG)
        asked = await write(store, cancel(held))
        (after,) = await store.renew_leases([lease_of(held)], LONG)
        assert before.cancel_requested_at is None
        assert after.cancel_requested_at == asked.cancel_requested_at is not None
        assert (before.version, after.version) == (held.version, asked.version)

    async def test_renewal_does_not_disturb_the_owners_next_update(
        self, store: LeasingStore
    ) -> None:
        """Renewals run beside the work; they must not make its base stale."""
        held = await claim(store, (await create(store)).run_id)
        renewing = asyncio.gather(*(store.renew_leases([lease_of(held)], LONG) for _ in range(10)))
        await store.update_run(start_step(held))
        assert all(renewal.ok for (renewal,) in await renewing)
        assert (await store.get_run(held.run_id)).version == held.version + 1

    async def test_lease_of_an_embedded_run_is_renewed_alike(self, store: LeasingStore) -> None:
        held = await create_embedded(store, seconds=self.lease_seconds)
        (renewal,) = await store.renew_leases([lease_of(held)], LONG)
        assert renewal.ok
        await self.expire_leases()
        assert not (await store.get_run(held.run_id)).owner_lost

    async def test_worker_releases_a_lease_on_completion(self, store: LeasingStore) -> None:
        """Ending clears the lease; the release that follows finds nothing left to do."""
        held = await claim(store, (await create(store)).run_id)
        running = await write(store, start_run(held))
        ended = await write(store, end_run(running))
        await store.release_lease(held.run_id, fencing_of(held), unique("release"))
        assert await store.get_run(held.run_id) == ended
        assert (ended.owner_id, ended.lease_expires_at) == (None, None)
        assert (await store.list_runnable()).items == ()

    async def test_released_run_is_runnable_at_once(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id)
        running = await write(store, start_step(held))
        await store.release_lease(held.run_id, fencing_of(held), unique("release"))
        released = await store.get_run(held.run_id)
        assert (released.status, released.owner_id) == (RunStatus.RUNNING, None)
        assert (released.version, released.fence) == (running.version + 1, running.fence)
        assert released.lease_expires_at is None
        assert released.owner_lost
        assert released.steps == running.steps
        assert [item.run_id for item in (await store.list_runnable()).items] == [held.run_id]

    async def test_release_sent_again_changes_nothing(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id)
        update_id = unique("release")
        await store.release_lease(held.run_id, fencing_of(held), update_id)
        released = await store.get_run(held.run_id)
        await store.release_lease(held.run_id, fencing_of(held), update_id)
        assert await store.get_run(held.run_id) == released

    async def test_release_sent_again_after_the_next_claim_is_lost(
        self, store: LeasingStore
    ) -> None:
        """It must not take the run away from whoever picked it up."""
        held = await claim(store, (await create(store)).run_id, "worker-1")
        update_id = unique("release")
        await store.release_lease(held.run_id, fencing_of(held), update_id)
        taken = await claim(store, held.run_id, "worker-2")
        with pytest.raises(LeaseLost):
            await store.release_lease(held.run_id, fencing_of(held), update_id)
        assert record_of(await store.get_run(held.run_id)) == record_of(taken)

    async def test_release_by_somebody_else_is_refused(self, store: LeasingStore) -> None:
        held = await claim(store, (await create(store)).run_id, "worker-1")
        right = fencing_of(held)
        for wrong in (replace(right, owner_id="worker-2"), replace(right, fence=right.fence + 1)):
            with pytest.raises(LeaseLost):
                await store.release_lease(held.run_id, wrong, unique("release"))
        assert record_of(await store.get_run(held.run_id)) == record_of(held)

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_release_of_an_unknown_run_is_refused(
        self, store: LeasingStore, run_id: str
    ) -> None:
        held = await claim(store, (await create(store)).run_id)
        with pytest.raises(RunNotFound):
            await store.release_lease(run_id, fencing_of(held), unique("release"))

    async def test_writes_and_renewals_after_release_are_lost(self, store: LeasingStore) -> None:
        """Owner gone, fence unchanged: the fence alone would still let them in."""
        held = await claim(store, (await create(store)).run_id)
        await store.release_lease(held.run_id, fencing_of(held), unique("release"))
        released = await store.get_run(held.run_id)
        with pytest.raises(LeaseLost):
            await store.update_run(start_run(replace(held, version=released.version)))
        (renewal,) = await store.renew_leases([lease_of(held)], LONG)
        assert not renewal.ok
        assert await store.get_run(held.run_id) == released

    async def test_release_after_an_operator_ended_the_run_is_lost(
        self, store: LeasingStore
    ) -> None:
        held = await claim(store, (await create(store)).run_id, seconds=self.lease_seconds)
        await self.expire_leases()
        ended = await write(store, operator_status(held, RunStatus.CANCELED))
        with pytest.raises(LeaseLost):
            await store.release_lease(held.run_id, fencing_of(held), unique("release"))
        assert await store.get_run(held.run_id) == ended
