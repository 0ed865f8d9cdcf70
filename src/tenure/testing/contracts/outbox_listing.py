"""Callbacks as people look at them."""

from __future__ import annotations

import pytest

from tenure.model.errors import DeliveryNotFound, InvalidCursor
from tenure.model.outbox import Delivered, GiveUp
from tenure.model.status import DeliveryState
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, create, create_embedded
from tenure.testing.contracts.harness import CallingStore, ContractHarness
from tenure.testing.factories import CHATTY, HOOK, end_run, start_step, unique


class DeliveryListing(ContractHarness):
    async def test_newest_is_listed_first(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(CHATTY,))
        await store.update_run(start_step(run, 0, ("web1",)))
        page = await store.list_deliveries()
        assert [item.event.type for item in page.items] == [
            "host.running",
            "step.running",
            "run.running",
        ]
        assert page.cursor is None

    async def test_one_is_found_by_its_id(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(CHATTY,))
        await store.update_run(start_step(run, 0, ("web1",)))
        listed = (await store.list_deliveries()).items
        assert [await store.get_delivery(each.id) for each in listed] == list(listed)
        for unknown in ("no-such-delivery", "\ud800"):
            with pytest.raises(DeliveryNotFound):
                await store.get_delivery(unknown)

    async def test_filters_by_state_and_run(self, store: CallingStore) -> None:
        runs = [await create(store, callbacks=(HOOK,)) for _ in range(3)]
        token = unique("token")
        held = {one.run_id: one for one in await store.claim_deliveries(token)}
        await store.settle_delivery(held[runs[0].run_id].id, token, Delivered())
        await store.settle_delivery(held[runs[1].run_id].id, token, GiveUp("410"))
        for state, run in zip(
            (DeliveryState.DELIVERED, DeliveryState.DEAD, DeliveryState.WAITING), runs, strict=True
        ):
            (only,) = (await store.list_deliveries(state=state)).items
            assert (only.run_id, only.state) == (run.run_id, state)
            (same,) = (await store.list_deliveries(state=state, run_id=run.run_id)).items
            assert same == only
            others = await store.list_deliveries(state=state, run_id=runs[0].run_id)
            assert len(others.items) == (run is runs[0])
        assert len((await store.list_deliveries()).items) == 3
        for unknown in UNKNOWN_RUN_IDS:
            assert (await store.list_deliveries(run_id=unknown)).items == ()

    async def test_pages_hold_every_delivery_once_whatever_is_inserted(
        self, store: CallingStore
    ) -> None:
        for _ in range(7):
            await create(store, callbacks=(HOOK,))
        there = [item.id for item in (await store.list_deliveries()).items]
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = await store.list_deliveries(limit=2, cursor=cursor)
            seen += [item.id for item in page.items]
            cursor = page.cursor
            if cursor is None:
                break
            await create(store, callbacks=(HOOK,))
        assert seen == there

    async def test_foreign_cursor_is_refused(self, store: CallingStore) -> None:
        for _ in range(2):
            await create(store, callbacks=(HOOK,))
        other = (await store.list_runs(limit=1)).cursor
        assert other is not None
        for cursor in ("nonsense", other):
            with pytest.raises(InvalidCursor):
                await store.list_deliveries(cursor=cursor)

    async def test_ended_runs_deliveries_stay_listed(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(HOOK,))
        await store.update_run(end_run(run))
        listed = await store.list_deliveries(run_id=run.run_id)
        assert [item.run_status for item in listed.items] == ["success", "running"]
