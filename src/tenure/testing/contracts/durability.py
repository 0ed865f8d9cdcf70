"""For stores that say ``durable``: what was acknowledged is there after a restart."""

from __future__ import annotations

import pytest

from tenure.model.errors import LeaseLost, RunExists
from tenure.model.status import RunStatus
from tenure.model.update import Changes
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import create_embedded, record_of, start_first_step, write
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import (
    cancel,
    embedded_run,
    end_run,
    finish_host,
    new_run,
    operator_status,
    owner_update,
    start_step,
)


class DurabilityContract(ContractHarness):
    """Beside ``store``, give a fixture ``reopened``: another store object on the same data, as a
    second process would open it, while the first one may still be open."""

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
        with pytest.raises(RunExists):
            await reopened.create_run(new_run(run_id=run.run_id))

    async def test_work_goes_on_through_the_other_store(
        self, store: RunStateStore, reopened: RunStateStore
    ) -> None:
        """Two processes on one store see each other's writes at once."""
        run = await start_first_step(store, await create_embedded(store))
        seen = await write(reopened, finish_host(run, 0, "web1"))
        assert (await store.get_run(run.run_id)).version == seen.version
        asked = await write(store, cancel(seen))
        assert (await reopened.get_run(run.run_id)).cancel_requested_at == asked.cancel_requested_at

    async def test_fence_is_remembered(self, store: RunStateStore, reopened: RunStateStore) -> None:
        run = await create_embedded(store)
        released = await write(store, owner_update(run, Changes(), release=True))
        await store.update_run(operator_status(released, RunStatus.CANCELED))
        with pytest.raises(LeaseLost):
            await reopened.update_run(start_step(run))
