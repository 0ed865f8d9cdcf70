"""For stores that judge leases by their machine's boot-time clock (memory, files, SQLite).

Needs ``ManualTime`` in front, and a store built with the fixture ``clock``. A store with a server
of its own (PostgreSQL) judges by the server's clock and has nothing to prove here.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from tenure.model.errors import LeaseHeld
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import claim, create, lease_of, write
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import LONG, change_run, lease_request, start_step


class MachineClockContract(ContractHarness):
    @pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400)], ids=str)
    async def test_jump_of_the_wall_clock_ends_no_lease(
        self, store: LeasingStore, clock: ManualClock, jump: timedelta
    ) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await store.update_run(start_step(held))
        clock.set_wall(clock.now() + jump)
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-2"))
        now = await store.get_run(run.run_id)
        assert not now.owner_lost

    @pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400)], ids=str)
    async def test_jump_of_the_wall_clock_prolongs_no_lease(
        self, store: LeasingStore, clock: ManualClock, jump: timedelta
    ) -> None:
        run = await create(store)
        await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        clock.set_wall(clock.now() + jump)
        clock.advance(self.lease_seconds)
        assert (await claim(store, run.run_id, "worker-2")).takeovers == 1

    async def test_lease_ends_at_its_very_instant(
        self, store: LeasingStore, clock: ManualClock
    ) -> None:
        run = await create(store)
        await claim(store, run.run_id, "worker-1", seconds=10)
        clock.advance(9.999)
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-2"))
        clock.advance(0.001)
        assert (await claim(store, run.run_id, "worker-2")).takeovers == 1

    async def test_reboot_ends_every_lease(self, store: LeasingStore, clock: ManualClock) -> None:
        """No process survives it; the new boot's time says nothing about the old one's."""
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=LONG)
        await store.update_run(start_step(held))
        clock.reboot()
        assert (await store.get_run(run.run_id)).owner_lost
        assert [item.run_id for item in (await store.list_runnable()).items] == [run.run_id]
        assert (await claim(store, run.run_id, "worker-2")).takeovers == 1

    async def test_lease_from_before_a_reboot_is_renewed_to_the_new_boots_time(
        self, store: LeasingStore, clock: ManualClock
    ) -> None:
        """Nothing says the owner is local: if it comes back before anybody claims, it goes on."""
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=LONG)
        clock.reboot()
        (renewal,) = await store.renew_leases([lease_of(held)], self.lease_seconds)
        assert renewal.ok
        assert renewal.expires_at == clock.now() + timedelta(seconds=self.lease_seconds)
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-2"))

    async def test_updated_at_moves_forward_though_the_wall_clock_goes_back(
        self, store: LeasingStore, clock: ManualClock
    ) -> None:
        run = await claim(store, (await create(store)).run_id)
        times = [run.updated_at]
        for number in range(3):
            clock.set_wall(clock.now() - timedelta(hours=1))
            run = await write(store, change_run(run, message=str(number)))
            times.append(run.updated_at)
        assert all(before and after and before < after for before, after in pairwise(times))

    async def test_expiry_is_told_in_wall_time(
        self, store: LeasingStore, clock: ManualClock
    ) -> None:
        run = await create(store)
        claimed = await store.claim_run(run.run_id, lease_request(seconds=90))
        assert claimed.lease.expires_at == clock.now() + timedelta(seconds=90)
        assert claimed.snapshot.lease_expires_at == claimed.lease.expires_at
        (renewal,) = await store.renew_leases([claimed.lease], 180)
        assert renewal.expires_at == clock.now() + timedelta(seconds=180)
