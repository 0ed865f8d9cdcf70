"""``StoreClock``, and leases by the machine's boot-time clock."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from tenure.model.errors import LeaseHeld
from tenure.model.leases import Purpose
from tenure.model.outbox import Delivered, RetryLater
from tenure.model.snapshot import Approval
from tenure.model.status import Recovery
from tenure.ports.store import StoreClock
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import claim, create, create_embedded, lease_of, refused, write
from tenure.testing.contracts.harness import CallingStore, ContractHarness, LeasingStore, TimedStore
from tenure.testing.factories import (
    HOOK,
    LONG,
    change_run,
    claim_request,
    lease_request,
    new_run,
    start_step,
    unique,
)


class StoreClockContract(ContractHarness):
    """``StoreClock``: the store's time."""

    async def test_store_tells_the_time(self, store: TimedStore) -> None:
        assert isinstance(store, StoreClock)
        assert (await store.store_time()).utcoffset() == timedelta(0)

    async def test_it_is_the_clock_that_stamps_records(self, store: TimedStore) -> None:
        """No offset may be derived from an earlier answer."""
        before = await store.store_time()
        await self.pass_time(self.lease_seconds)
        run = await create(store)
        assert run.created_at is not None
        assert before < run.created_at <= await store.store_time()


# For stores that use the machine's boot-time clock (memory, SQLite); needs ``ManualTime`` in front.
JUMPS = [timedelta(days=-400), timedelta(days=400)]
BOOTS = [1, 2]
"""The id of the next boot sorts before the present one, that of the second after it."""


class MachineClockContract(ContractHarness):
    @pytest.mark.parametrize("jump", JUMPS, ids=str)
    async def test_jump_of_the_wall_clock_ends_no_lease(
        self, store: LeasingStore, clock: ManualClock, jump: timedelta
    ) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await store.update_run(start_step(held))
        clock.set_wall(clock.now() + jump)
        await refused(LeaseHeld, store.claim_run(run.run_id, lease_request("worker-2")))
        now = await store.get_run(run.run_id)
        assert not now.owner_lost

    @pytest.mark.parametrize("jump", JUMPS, ids=str)
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
        await refused(LeaseHeld, store.claim_run(run.run_id, lease_request("worker-2")))
        clock.advance(0.001)
        assert (await claim(store, run.run_id, "worker-2")).takeovers == 1

    @pytest.mark.parametrize("boots", BOOTS)
    async def test_reboot_ends_every_lease(
        self, store: LeasingStore, clock: ManualClock, boots: int
    ) -> None:
        """No process survives a reboot; times of two boots cannot be compared."""
        held = await claim(store, (await create(store)).run_id, "worker-1", seconds=LONG)
        await store.update_run(start_step(held))
        _reboot(clock, boots)
        assert (await store.get_run(held.run_id)).owner_lost
        assert [item.run_id for item in (await store.list_runnable()).items] == [held.run_id]
        assert (await claim(store, held.run_id, "worker-2")).takeovers == 1

    @pytest.mark.parametrize("boots", BOOTS)
    async def test_who_is_careful_still_takes_a_lease_from_before_a_reboot(
        self, store: LeasingStore, clock: ManualClock, boots: int
    ) -> None:
        """``expired=False`` protects owners that may come back; after a reboot none can."""
        resuming, other = [
            await create_embedded(store, seconds=LONG, recovery=Recovery.RESUME) for _ in range(2)
        ]
        interrupted = await create_embedded(store, seconds=LONG)
        clock.advance(LONG)
        assert await _claim_carefully(store, Purpose.EXECUTE) == []
        assert await _claim_carefully(store, Purpose.RECONCILE) == []
        _reboot(clock, boots)
        request = lease_request("worker-2", expired=False)
        assert (await store.claim_run(resuming.run_id, request)).snapshot.takeovers == 1
        assert await _claim_carefully(store, Purpose.EXECUTE) == [other.run_id]
        assert await _claim_carefully(store, Purpose.RECONCILE) == [interrupted.run_id]

    @pytest.mark.parametrize("boots", BOOTS)
    async def test_lease_from_before_a_reboot_is_renewed_to_the_new_boots_time(
        self, store: LeasingStore, clock: ManualClock, boots: int
    ) -> None:
        """The owner may be on another machine and still renew before another claim."""
        held = await claim(store, (await create(store)).run_id, "worker-1", seconds=LONG)
        _reboot(clock, boots)
        (renewal,) = await store.renew_leases([lease_of(held)], self.lease_seconds)
        assert renewal.ok
        assert renewal.expires_at == clock.now() + timedelta(seconds=self.lease_seconds)
        await refused(LeaseHeld, store.claim_run(held.run_id, lease_request("worker-2")))

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

    async def test_run_waits_for_its_time_also_if_others_were_created_after_it(
        self, store: LeasingStore, clock: ManualClock
    ) -> None:
        """When the wall clock was set back; other runs do not wait."""
        other = await create(store)
        clock.set_wall(clock.now() - timedelta(hours=1))
        run_after = clock.now() + timedelta(seconds=20)
        scheduled = await create(store, priority=10, run_after=run_after)
        assert await _runnable(store) == [other.run_id]
        assert await _claim_next(store) == [other.run_id]
        assert await _claim_next(store) == []
        clock.advance(20)
        assert await _runnable(store) == [scheduled.run_id]
        assert await _claim_next(store) == [scheduled.run_id]

    async def test_time_that_comes_twice_is_waited_for_twice(
        self, store: LeasingStore, clock: ManualClock
    ) -> None:
        urgent, other = await create(store, priority=20), await create(store)
        run_after = clock.now() + timedelta(seconds=20)
        scheduled = await create(store, priority=10, run_after=run_after)
        clock.advance(30)
        assert await _claim_next(store) == [urgent.run_id]
        clock.set_wall(clock.now() - timedelta(seconds=15))
        assert await _runnable(store) == [other.run_id]
        assert await _claim_next(store) == [other.run_id]
        clock.advance(5)
        assert await _claim_next(store) == [scheduled.run_id]

    async def test_run_waits_for_approval_no_longer_than_it_must(
        self, store: LeasingStore, clock: ManualClock
    ) -> None:
        await create(store)
        clock.set_wall(clock.now() - timedelta(hours=1))
        new = replace(new_run(approval=Approval(required=True)), approval_seconds=20.0)
        await store.create_run(new)
        waiting = await store.get_run(new.snapshot.run_id)
        assert waiting.approval.expires_at == clock.now() + timedelta(seconds=20)

    async def test_released_run_does_not_wait_longer_than_it_must(
        self, store: LeasingStore, clock: ManualClock
    ) -> None:
        await create(store)
        clock.set_wall(clock.now() - timedelta(hours=1))
        run_after = clock.now() + timedelta(seconds=20)
        held = await create_embedded(
            store, priority=10, run_after=run_after, recovery=Recovery.RESUME
        )
        await store.release_lease(held.run_id, lease_of(held).fencing, unique("release"))
        clock.advance(20)
        assert await _claim_next(store) == [held.run_id]


def _reboot(clock: ManualClock, times: int) -> None:
    for _ in range(times):
        clock.reboot()


async def _runnable(store: LeasingStore) -> list[str]:
    return [run.run_id for run in (await store.list_runnable()).items]


async def _claim_next(store: LeasingStore) -> list[str]:
    return [claimed.lease.run_id for claimed in await store.claim_runs(claim_request(limit=1))]


async def _claim_carefully(store: LeasingStore, purpose: Purpose) -> list[str]:
    request = claim_request("worker-2", limit=5, expired=False, purpose=purpose)
    return [claimed.lease.run_id for claimed in await store.claim_runs(request)]


class OutboxMachineClockContract(ContractHarness):
    @pytest.mark.parametrize("jump", JUMPS, ids=str)
    async def test_new_callback_is_due_at_once_whatever_the_wall_clock_says(
        self, store: CallingStore, clock: ManualClock, jump: timedelta
    ) -> None:
        run = await create(store, callbacks=(HOOK,))
        clock.set_wall(clock.now() + jump)
        (claimed,) = await store.claim_deliveries(unique("token"))
        assert claimed.run_id == run.run_id

    @pytest.mark.parametrize("jump", JUMPS, ids=str)
    async def test_jump_of_the_wall_clock_neither_hurries_nor_delays_a_retry(
        self, store: CallingStore, clock: ManualClock, jump: timedelta
    ) -> None:
        await create(store, callbacks=(HOOK,))
        await _fail(store, delay=60)
        clock.set_wall(clock.now() + jump)
        clock.advance(59.999)
        assert await store.claim_deliveries(unique("token")) == []
        clock.advance(0.001)
        assert len(await store.claim_deliveries(unique("token"))) == 1

    @pytest.mark.parametrize("boots", BOOTS)
    async def test_retry_of_before_a_reboot_is_due_at_once(
        self, store: CallingStore, clock: ManualClock, boots: int
    ) -> None:
        """The time spent off is unknown; too early is better than days late."""
        await create(store, callbacks=(HOOK,))
        await _fail(store, delay=60)
        _reboot(clock, boots)
        assert len(await store.claim_deliveries(unique("token"))) == 1

    @pytest.mark.parametrize("boots", BOOTS)
    async def test_reboot_ends_the_claim_of_a_relay(
        self, store: CallingStore, clock: ManualClock, boots: int
    ) -> None:
        await create(store, callbacks=(HOOK,))
        (first,) = await store.claim_deliveries("relay-of-old", seconds=LONG)
        _reboot(clock, boots)
        (again,) = await store.claim_deliveries("relay-of-now", seconds=LONG)
        assert again.id == first.id
        done = await store.settle_delivery(again.id, "relay-of-now", Delivered())
        assert done.attempts == 1

    async def test_due_time_is_told_in_wall_time(
        self, store: CallingStore, clock: ManualClock
    ) -> None:
        await create(store, callbacks=(HOOK,))
        await _fail(store, delay=90)
        (waiting,) = (await store.list_deliveries()).items
        assert waiting.due_at == clock.now() + timedelta(seconds=90)

    @pytest.mark.parametrize("delay", [-1.0, 1e12])
    async def test_delay_that_makes_no_sense_is_bounded(
        self, store: CallingStore, clock: ManualClock, delay: float
    ) -> None:
        await create(store, callbacks=(HOOK,))
        await _fail(store, delay=delay)
        clock.advance(366 * 86400 if delay > 0 else 0)
        assert len(await store.claim_deliveries(unique("token"))) == 1


async def _fail(store: CallingStore, *, delay: float) -> None:
    token = unique("token")
    (held,) = await store.claim_deliveries(token)
    await store.settle_delivery(held.id, token, RetryLater(delay=delay, error="503"))
