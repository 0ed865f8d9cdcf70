"""For stores that several processes have open: what one of them remembers of a run gives it no
right to write over what another one wrote.

Beside ``store``, give the fixture ``reopened`` of ``DurabilityContract``. The owner writes through
``store``, which may remember the run as it left it; whatever comes between happens in ``reopened``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenure.model.errors import LeaseLost, VersionConflict
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, RunStatus
from tenure.model.update import Update
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import (
    claim,
    create,
    create_embedded,
    record_of,
    start_first_step,
    write,
)
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.contracts.lease_takeover import race_for
from tenure.testing.factories import (
    HOOK,
    annotate,
    cancel,
    change_run,
    end_run,
    fencing_of,
    finish_host,
    unique,
)

OwnersWrite = Callable[[RunSnapshot], Update]


def a_result(run: RunSnapshot) -> Update:
    return finish_host(run, 0, "web1")


def a_message(run: RunSnapshot) -> Update:
    return change_run(run, message="still here")


def the_end(run: RunSnapshot) -> Update:
    """Which owes a callback."""
    return end_run(run, RunStatus.FAILED)


EACH_WRITE = pytest.mark.parametrize(
    "owners_write", [a_result, a_message, the_end], ids=lambda made: str(made.__name__)
)


class SharedStoreContract(ContractHarness):
    @EACH_WRITE
    async def test_owner_asked_to_stop_elsewhere_is_told(
        self, store: RunStateStore, reopened: RunStateStore, owners_write: OwnersWrite
    ) -> None:
        run = await start_first_step(store, await create_embedded(store, callbacks=(HOOK,)))
        asked = await write(reopened, cancel(run))
        with pytest.raises(VersionConflict) as conflict:
            await store.update_run(owners_write(run))
        told = conflict.value
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
        with pytest.raises(VersionConflict) as conflict:
            await store.update_run(owners_write(run))
        told = conflict.value
        assert (told.version, told.fence) == (noted.version, run.fence)
        assert (told.status, told.cancel_requested_at) == (RunStatus.RUNNING, None)
        assert await store.get_run(run.run_id) == noted

    async def test_owner_that_was_told_goes_on_from_there(
        self, store: RunStateStore, reopened: RunStateStore
    ) -> None:
        run = await start_first_step(store, await create_embedded(store))
        noted = await write(reopened, annotate(run, found="outside"))
        with pytest.raises(VersionConflict):
            await store.update_run(a_result(run))
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
        with pytest.raises(LeaseLost) as lost:
            await store.update_run(owners_write(held))
        assert (lost.value.owner_id, lost.value.fence) == ("owner-b", taken.fence)
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
        with pytest.raises(LeaseLost) as lost:
            await store.update_run(owners_write(held))
        assert (lost.value.owner_id, lost.value.fence) == (None, held.fence)
        assert await store.get_run(run.run_id) == free

    async def test_claim_is_never_torn_by_a_late_update_elsewhere(
        self, store: LeasingStore, reopened: LeasingStore
    ) -> None:
        """One store may do the two in turn by itself; two of them race for each other's gaps."""
        runs: list[RunSnapshot] = []
        for _ in range(40):
            run = await create(store)
            held = await claim(store, run.run_id, "worker-1", seconds=self.lease_seconds)
            runs.append(await start_first_step(store, held))
        await self.expire_leases()
        for frozen in runs:
            await race_for(frozen, store, reopened)
