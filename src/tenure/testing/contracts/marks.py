"""``RunMarks``: another mark whenever a run reads differently, and versions of many."""

from __future__ import annotations

import re

import pytest

from tenure.model.errors import RunNotFound
from tenure.model.outbox import GiveUp
from tenure.ports.marks import RunMarks
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, claim, create, lease_of, write
from tenure.testing.contracts.harness import ContractHarness, MarkingStore
from tenure.testing.factories import HOOK, LONG, annotate, start_run


class RunMarksContract(ContractHarness):
    async def test_store_has_marks(self, store: MarkingStore) -> None:
        assert isinstance(store, RunMarks)

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS)
    async def test_unknown_run_has_none(self, store: MarkingStore, run_id: str) -> None:
        with pytest.raises(RunNotFound):
            await store.mark_of(run_id)

    async def test_mark_stays_while_nothing_changes(self, store: MarkingStore) -> None:
        run = await create(store)
        mark = await store.mark_of(run.run_id)
        await write(store, annotate(await create(store), found="elsewhere"))
        assert await store.mark_of(run.run_id) == mark
        assert re.fullmatch(r"[A-Za-z0-9.-]{1,100}", mark)

    async def test_mark_changes_with_the_run(self, store: MarkingStore) -> None:
        run = await create(store)
        marks = [await store.mark_of(run.run_id)]
        run = await claim(store, run.run_id, seconds=self.lease_seconds)
        marks.append(await store.mark_of(run.run_id))
        await write(store, start_run(run))
        marks.append(await store.mark_of(run.run_id))
        await write(store, annotate(run, found="something"))
        marks.append(await store.mark_of(run.run_id))
        assert len(set(marks)) == len(marks)

    async def test_mark_changes_with_the_lease(self, store: MarkingStore) -> None:
        run = await create(store)
        run = await claim(store, run.run_id, seconds=self.lease_seconds)
        marks = [await store.mark_of(run.run_id)]
        await self.expire_leases()
        marks.append(await store.mark_of(run.run_id))
        await store.renew_leases([lease_of(run)], LONG)
        marks.append(await store.mark_of(run.run_id))
        assert len(set(marks)) == len(marks)

    async def test_versions_are_told_of_many_at_once(self, store: MarkingStore) -> None:
        runs = [await create(store) for _ in range(3)]
        await write(store, annotate(runs[1], found="something"))
        asked = [run.run_id for run in (runs[0], *runs, *runs)]
        found = await store.versions_of([*UNKNOWN_RUN_IDS, *asked])
        assert found == {run.run_id: run.version + (run is runs[1]) for run in runs}
        assert await store.versions_of([]) == {}

    async def test_lease_that_is_renewed_leaves_the_version(self, store: MarkingStore) -> None:
        run = await claim(store, (await create(store)).run_id, seconds=self.lease_seconds)
        await store.renew_leases([lease_of(run)], LONG)
        assert await store.versions_of([run.run_id]) == {run.run_id: run.version}

    async def test_mark_changes_when_a_callback_is_given_up(self, store: MarkingStore) -> None:
        run = await create(store, callbacks=(HOOK,))
        mark = await store.mark_of(run.run_id)
        (delivery,) = await store.claim_deliveries("relay")
        await store.settle_delivery(delivery.id, "relay", GiveUp(error="nobody is there"))
        assert (await store.get_run(run.run_id)).callback_error is not None
        assert await store.mark_of(run.run_id) != mark
