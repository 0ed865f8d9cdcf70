"""``Retention`` beside a ``LogStore``: output goes with its run."""

from __future__ import annotations

import pytest

from tenure.model.errors import RunNotFound
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.store import LogKey
from tenure.testing.contracts.acts import claim, create, write
from tenure.testing.contracts.harness import ForgettingLoggingStore
from tenure.testing.contracts.retention import ForgettingHarness
from tenure.testing.factories import end_run, fencing_of, unique

OUT = LogKey(step=0, host="web1", stream="stdout")


class OutputRetentionContract(ForgettingHarness):
    async def test_output_goes_with_its_run(self, store: ForgettingLoggingStore) -> None:
        run = await _printed(store, unique("run"), b"old")
        await self.prune_ended(store)
        with pytest.raises(RunNotFound):
            await store.read(run.run_id, OUT)
        with pytest.raises(RunNotFound):
            await store.append(run.run_id, fencing_of(run), OUT, 0, b"late")

    async def test_output_of_others_stays(self, store: ForgettingLoggingStore) -> None:
        run = await _printed(store, unique("run"), b"old")
        await self.expire_leases()
        stays = await _printed(store, unique("run"), b"kept")
        await store.prune_runs(self.lease_seconds)
        assert (await store.read(stays.run_id, OUT)).data == b"kept"
        with pytest.raises(RunNotFound):
            await store.read(run.run_id, OUT)

    async def test_later_run_of_the_same_id_begins_with_none(
        self, store: ForgettingLoggingStore
    ) -> None:
        old = await _printed(store, unique("run"), b"old")
        await self.prune_ended(store)
        run = await claim(store, (await create(store, run_id=old.run_id)).run_id)
        assert (await store.read(run.run_id, OUT)).size == 0
        assert await store.append(run.run_id, fencing_of(run), OUT, 0, b"new") == 3
        assert (await store.read(run.run_id, OUT)).data == b"new"


async def _printed(store: ForgettingLoggingStore, run_id: str, data: bytes) -> RunSnapshot:
    run = await claim(store, (await create(store, run_id=run_id)).run_id)
    await store.append(run.run_id, fencing_of(run), OUT, 0, data)
    return await write(store, end_run(run, RunStatus.FAILED))
