"""Owners that fall silent, and what they may still do when they wake."""

from __future__ import annotations

import asyncio

import pytest

from tenure.model.errors import LeaseHeld, LeaseLost
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, RunStatus
from tenure.model.update import Receipt
from tenure.testing.contracts.acts import claim, create, lease_of, record_of, write
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import (
    LONG,
    cancel,
    change_run,
    end_run,
    fencing_of,
    finish_host,
    lease_request,
    operator_status,
    start_step,
    unique,
)


async def race_for(frozen: RunSnapshot, owners: LeasingStore, others: LeasingStore) -> None:
    """Its old owner writes through one store, somebody claims it through the other."""
    written, taken = await asyncio.gather(
        owners.update_run(finish_host(frozen, 0, "web1")),
        claim(others, frozen.run_id, "worker-2"),
        return_exceptions=True,
    )
    assert isinstance(taken, RunSnapshot)
    finished = taken.steps[0].hosts["web1"].status == HostStatus.SUCCESS
    if isinstance(written, Receipt):
        assert finished
    else:
        # Lost, but perhaps applied before: its answer may have been.
        assert isinstance(written, LeaseLost)
    assert record_of(await owners.get_run(frozen.run_id)) == record_of(taken)


class Takeovers(ContractHarness):
    async def _started(self, store: LeasingStore) -> RunSnapshot:
        """A run whose owner started the first step, under a lease that will not last."""
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        return await write(store, start_step(held))

    async def _frozen(self, store: LeasingStore) -> RunSnapshot:
        """The same, and its owner has not been heard of since."""
        started = await self._started(store)
        await self.expire_leases()
        return started

    async def test_lease_expiry_allows_takeover(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        taken = await claim(store, frozen.run_id, "worker-2")
        assert (taken.owner_id, taken.fence) == ("worker-2", frozen.fence + 1)
        assert taken.version == frozen.version + 1
        assert (taken.takeovers, taken.takeovers_without_progress) == (1, 1)
        assert (taken.status, taken.steps) == (RunStatus.RUNNING, frozen.steps)
        running = await write(store, finish_host(taken, 0, "web1"))
        assert running.steps[0].hosts["web1"].status == HostStatus.SUCCESS

    async def test_frozen_worker_thaws(self, store: LeasingStore) -> None:
        """Claim, freeze, expire; another claims; the first wakes and believes nothing happened.

        Everything it does is refused and leaves no trace, also the repetition of an intent that
        had been applied: told "ok", it would start the task beside its successor's.
        """
        run = await create(store)
        held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        intent = start_step(held)
        started = await write(store, intent)
        await self.expire_leases()
        taken = await claim(store, run.run_id, "worker-2")
        for late in (
            intent,
            finish_host(started, 0, "web1"),
            change_run(started, message="still here"),
            end_run(started, RunStatus.FAILED),
        ):
            with pytest.raises(LeaseLost) as lost:
                await store.update_run(late)
            assert (lost.value.owner_id, lost.value.fence) == ("worker-2", taken.fence)
        (renewal,) = await store.renew_leases([lease_of(held)], LONG)
        assert not renewal.ok
        with pytest.raises(LeaseLost):
            await store.release_lease(run.run_id, fencing_of(held), unique("release"))
        with pytest.raises(LeaseHeld):
            await store.claim_run(run.run_id, lease_request("worker-1"))
        assert record_of(await store.get_run(run.run_id)) == record_of(taken)

    async def test_frozen_worker_thaws_after_its_successor_finished(
        self, store: LeasingStore
    ) -> None:
        frozen = await self._frozen(store)
        taken = await claim(store, frozen.run_id, "worker-2")
        ended = await write(store, end_run(taken, RunStatus.FAILED))
        for late in (finish_host(frozen, 0, "web1"), end_run(frozen, RunStatus.FAILED)):
            with pytest.raises(LeaseLost):
                await store.update_run(late)
        assert not (await store.renew_leases([lease_of(frozen)], LONG))[0].ok
        assert await store.get_run(frozen.run_id) == ended

    async def test_expired_lease_that_nobody_took_still_writes(self, store: LeasingStore) -> None:
        """An outage of the store loses no work."""
        frozen = await self._frozen(store)
        assert (await store.get_run(frozen.run_id)).owner_lost
        finished = await write(store, finish_host(frozen, 0, "web1"))
        assert finished.version == frozen.version + 1
        assert (await write(store, end_run(finished, RunStatus.FAILED))).status == RunStatus.FAILED

    async def test_writing_does_not_revive_an_expired_lease(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        await store.update_run(finish_host(frozen, 0, "web1"))
        assert (await claim(store, frozen.run_id, "worker-2")).takeovers == 1

    async def test_expired_lease_that_nobody_took_is_renewed(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        (renewal,) = await store.renew_leases([lease_of(frozen)], LONG)
        assert renewal.ok
        now = await store.get_run(frozen.run_id)
        assert not now.owner_lost
        assert (now.version, now.fence) == (frozen.version, frozen.fence)
        with pytest.raises(LeaseHeld):
            await store.claim_run(frozen.run_id, lease_request("worker-2"))

    async def test_expired_lease_of_ones_own_is_taken_over_with_a_new_fence(
        self, store: LeasingStore
    ) -> None:
        frozen = await self._frozen(store)
        again = await claim(store, frozen.run_id, "worker-1")
        assert (again.fence, again.takeovers) == (frozen.fence + 1, 1)
        with pytest.raises(LeaseLost):
            await store.update_run(finish_host(frozen))

    async def test_one_of_many_takes_an_expired_run_over(self, store: LeasingStore) -> None:
        frozen = await self._frozen(store)
        answers = await asyncio.gather(
            *(
                store.claim_run(frozen.run_id, lease_request(f"worker-{number}"))
                for number in range(2, 22)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(answer, LeaseHeld) for answer in answers) == 19
        now = await store.get_run(frozen.run_id)
        assert (now.takeovers, now.fence) == (1, frozen.fence + 1)

    async def test_update_before_the_claim_is_in_the_claimed_record(
        self, store: LeasingStore
    ) -> None:
        frozen = await self._frozen(store)
        await store.update_run(finish_host(frozen, 0, "web1"))
        taken = await claim(store, frozen.run_id, "worker-2")
        assert taken.steps[0].hosts["web1"].status == HostStatus.SUCCESS

    async def test_claim_is_never_torn_by_a_late_update(self, store: LeasingStore) -> None:
        """The old owner writes while the new one claims: either the result is in the record the
        claim returns, or the write is lost. Else a finished host would run again."""
        runs = [await self._started(store) for _ in range(10)]
        await self.expire_leases()
        for frozen in runs:
            await race_for(frozen, store, store)

    async def test_progress_ends_a_row_of_takeovers(self, store: LeasingStore) -> None:
        """What parks a run is takeovers without any host finishing."""
        frozen = await self._frozen(store)
        taken = await claim(store, frozen.run_id, "worker-2", seconds=self.lease_seconds)
        await self.expire_leases()
        again = await claim(store, frozen.run_id, "worker-3")
        assert (again.takeovers, again.takeovers_without_progress) == (2, 2)
        assert again.fence == taken.fence + 1
        finished = await write(store, finish_host(again, 0, "web1"))
        assert (finished.takeovers, finished.takeovers_without_progress) == (2, 0)

    async def test_cancel_of_an_expired_run_ends_it(self, store: LeasingStore) -> None:
        """Its owner is dead or must believe so: canceled without waiting for anybody."""
        frozen = await self._frozen(store)
        ended = await write(store, cancel(frozen))
        assert (ended.status, ended.owner_id) == (RunStatus.CANCELED, None)
        assert ended.fence == frozen.fence + 1
        with pytest.raises(LeaseLost):
            await store.update_run(finish_host(frozen))

    async def test_operator_may_change_the_status_of_an_expired_run(
        self, store: LeasingStore
    ) -> None:
        frozen = await self._frozen(store)
        ended = await write(store, operator_status(frozen, RunStatus.INTERRUPTED))
        assert (ended.status, ended.fence) == (RunStatus.INTERRUPTED, frozen.fence + 1)

    async def test_owner_lost_and_expiry_are_facts_of_the_moment(self, store: LeasingStore) -> None:
        started = await self._started(store)
        assert not started.owner_lost
        assert started.lease_expires_at is not None
        await self.expire_leases()
        now = await store.get_run(started.run_id)
        assert now.owner_lost
        assert (now.owner_id, now.version) == ("worker-1", started.version)
        (listed,) = (await store.list_runs()).items
        assert listed.owner_lost

    async def test_queued_run_is_never_called_lost(self, store: LeasingStore) -> None:
        run = await create(store)
        assert not run.owner_lost
        await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
        await self.expire_leases()
        assert not (await store.get_run(run.run_id)).owner_lost
