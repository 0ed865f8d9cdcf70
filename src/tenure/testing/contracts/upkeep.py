"""``Upkeep``: what a store says of itself. What damage looks like is each store's own business."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.status import RunStatus
from tenure.ports.store import StoreReport, Upkeep
from tenure.testing.contracts.acts import create, create_embedded, start_first_step, write
from tenure.testing.contracts.harness import ContractHarness, KeptUpStore
from tenure.testing.factories import HOOK, end_run


class UpkeepContract(ContractHarness):
    async def test_store_can_be_looked_after(self, store: KeptUpStore) -> None:
        assert isinstance(store, Upkeep)

    async def test_new_store_is_sound_and_up_to_date(self, store: KeptUpStore) -> None:
        report = await store.check_store()
        assert report.problems == ()
        assert report.schema == report.newest_schema
        assert report.place
        assert report.runs in (0, None)

    async def test_store_at_work_is_sound(self, store: KeptUpStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,), definition="name: deploy")
        await write(store, end_run(await start_first_step(store, run), RunStatus.FAILED))
        await start_first_step(store, await create_embedded(store, labels={"team": "web"}))
        await create(store)
        report = await store.check_store()
        assert report.problems == ()
        assert report.runs in (3, None)

    async def test_looking_changes_nothing(self, store: KeptUpStore) -> None:
        run = await create_embedded(store)
        await store.check_store()
        assert await store.get_run(run.run_id) == run

    async def test_migrating_what_is_up_to_date_changes_nothing(self, store: KeptUpStore) -> None:
        run = await create_embedded(store)
        before = await store.check_store()
        after = await store.migrate_store()
        assert _comparable(after) == _comparable(before)
        assert await store.get_run(run.run_id) == run


def _comparable(report: StoreReport) -> StoreReport:
    """Space is not a matter of what was asked alone."""
    return replace(report, bytes_used=None)
