"""Durable stores, and stores that several processes have open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenure.model.errors import LeaseLost, RunExists, VersionConflict
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, RunStatus
from tenure.model.update import Changes, Update
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import (
    claim,
    create,
    create_embedded,
    record_of,
    refused,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.contracts.leases import race_for
from tenure.testing.factories import (
    HOOK,
    annotate,
    cancel,
    change_run,
    embedded_run,
    end_run,
    fencing_of,
    finish_host,
    new_run,
    operator_status,
    owner_update,
    start_step,
    unique,
)

OwnersWrite = Callable[[RunSnapshot], Update]


def a_result(run: RunSnapshot) -> Update:
    return finish_host(run, 0, "web1")


def a_message(run: RunSnapshot) -> Update:
    return change_run(run, message="still here")


def the_end(run: RunSnapshot) -> Update:
    """With a callback."""
    return end_run(run, RunStatus.FAILED)


EACH_WRITE = pytest.mark.parametrize(
    "owners_write", [a_result, a_message, the_end], ids=lambda made: str(made.__name__)
)


class SharedStoreContract(ContractHarness):
    """For stores that several processes have open: a cached run must not overwrite another's write.

    Beside ``store``, give the fixture ``reopened`` of ``DurabilityContract``. The owner writes
    through ``store``, which may cache the run; other writes go through ``reopened``.
    """

    @EACH_WRITE
    async def test_owner_asked_to_stop_elsewhere_is_told(
        self, store: RunStateStore, reopened: RunStateStore, owners_write: OwnersWrite
    ) -> None:
        run = await start_first_step(store, await create_embedded(store, callbacks=(HOOK,)))
        asked = await write(reopened, cancel(run))
        conflict = await refused(VersionConflict, store.update_run(owners_write(run)))
        told = conflict
        assert (told.base_version, told.version) == (run.version, asked.version)
        assert (told.fence, told.status) == (run.fence, RunStatus.RUNNING)
        assert told.cancel_requested_at == asked.cancel_requested_at is not None
        assert await store.get_run(run.run_id) == asked

    @EACH_WRITE
    async def test_what_is_noted_elsewhere_is_not_written_over(
        self, store: RunStateStore, reopened: RunStateStore, owners_write: OwnersWrite
    ) -> None:
        run = await start_first_step(store, await create_embedded(store, callbacks=(HOOK,)))
        noted = await write(reopened, annotate(run, found="outside"))
        conflict = await refused(VersionConflict, store.update_run(owners_write(run)))
        told = conflict
        assert (told.version, told.fence) == (noted.version, run.fence)
        assert (told.status, told.cancel_requested_at) == (RunStatus.RUNNING, None)
        assert await store.get_run(run.run_id) == noted

    async def test_owner_that_was_told_goes_on_from_there(
        self, store: RunStateStore, reopened: RunStateStore
    ) -> None:
        run = await start_first_step(store, await create_embedded(store))
        noted = await write(reopened, annotate(run, found="outside"))
        await refused(VersionConflict, store.update_run(a_result(run)))
        after = await write(store, a_result(noted))
        assert after.annotations == noted.annotations
        assert after.steps[0].hosts["web1"].status == HostStatus.SUCCESS


class SharedLeasesContract(ContractHarness):
    @EACH_WRITE
    async def test_owner_replaced_elsewhere_writes_nothing(
        self, store: LeasingStore, reopened: LeasingStore, owners_write: OwnersWrite
    ) -> None:
        run = await create(store, callbacks=(HOOK,))
        held = await claim(store, run.run_id, "owner-a", seconds=self.lease_seconds)
        held = await start_first_step(store, held)
        await self.expire_leases()
        taken = await claim(reopened, run.run_id, "owner-b")
        lost = await refused(LeaseLost, store.update_run(owners_write(held)))
        assert (lost.owner_id, lost.fence) == ("owner-b", taken.fence)
        assert record_of(await store.get_run(run.run_id)) == record_of(taken)
        assert (await write(reopened, a_result(taken))).version == taken.version + 1

    @EACH_WRITE
    async def test_owner_whose_run_was_given_back_elsewhere_writes_nothing(
        self, store: LeasingStore, reopened: LeasingStore, owners_write: OwnersWrite
    ) -> None:
        run = await create(store, callbacks=(HOOK,))
        held = await start_first_step(store, await claim(store, run.run_id, "owner-a"))
        await reopened.release_lease(run.run_id, fencing_of(held), unique("release"))
        free = await reopened.get_run(run.run_id)
        lost = await refused(LeaseLost, store.update_run(owners_write(held)))
        assert (lost.owner_id, lost.fence) == (None, held.fence)
        assert await store.get_run(run.run_id) == free

    async def test_claim_is_never_torn_by_a_late_update_elsewhere(
        self, store: LeasingStore, reopened: LeasingStore
    ) -> None:
        """A single store might serialise the two; two stores do not."""
        runs: list[RunSnapshot] = []
        for _ in range(40):
            run = await create(store)
            held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
            runs.append(await start_first_step(store, held))
        await self.expire_leases()
        for frozen in runs:
            await race_for(frozen, store, reopened)


class DurabilityContract(ContractHarness):
    """For durable stores: acknowledged writes survive a restart.

    Beside ``store``, give a fixture ``reopened``: another store object on the same data, as opened
    by a second process, while the first may still be open.
    """

    async def test_store_says_that_it_is_durable(self, store: RunStateStore) -> None:
        assert store.durable

    async def test_historical_run_remains_queryable(
        self, store: RunStateStore, reopened: RunStateStore
    ) -> None:
        run = await start_first_step(store, await create_embedded(store, vars={"deep": [1]}))
        ended = await write(store, end_run(run, RunStatus.FAILED))
        assert await reopened.get_run(ended.run_id) == ended
        assert [item.run_id for item in (await reopened.list_runs()).items] == [ended.run_id]

    async def test_unfinished_run_is_found_as_it_was(
        self, store: RunStateStore, reopened: RunStateStore
    ) -> None:
        run = await start_first_step(store, await create_embedded(store))
        found = await reopened.get_run(run.run_id)
        assert record_of(found) == record_of(run)
        assert (found.owner_id, found.fence) == (run.owner_id, run.fence)

    async def test_writes_sent_again_after_a_restart_are_recognised(
        self, store: RunStateStore, reopened: RunStateStore
    ) -> None:
        new = embedded_run()
        await store.create_run(new)
        run = await store.get_run(new.snapshot.run_id)
        started = start_step(run)
        run = await write(store, started)
        assert (await reopened.create_run(new)).version == 1
        assert (await reopened.update_run(started)).version == 2
        assert (await reopened.get_run(run.run_id)).version == 2
        await refused(RunExists, reopened.create_run(new_run(run_id=run.run_id)))

    async def test_work_goes_on_through_the_other_store(
        self, store: RunStateStore, reopened: RunStateStore
    ) -> None:
        run = await start_first_step(store, await create_embedded(store))
        seen = await write(reopened, finish_host(run, 0, "web1"))
        assert (await store.get_run(run.run_id)).version == seen.version
        asked = await write(store, cancel(seen))
        assert (await reopened.get_run(run.run_id)).cancel_requested_at == asked.cancel_requested_at

    async def test_fence_is_remembered(self, store: RunStateStore, reopened: RunStateStore) -> None:
        run = await create_embedded(store)
        released = await write(store, owner_update(run, Changes(), release=True))
        await store.update_run(operator_status(released, RunStatus.CANCELED))
        await refused(LeaseLost, reopened.update_run(start_step(run)))
