"""Which runs could be claimed now."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta

import pytest

from tenure.model.errors import InvalidCursor
from tenure.model.query import RunFilter
from tenure.model.snapshot import Approval, RunSummary, summarize
from tenure.model.status import Recovery, RunStatus
from tenure.testing.contracts.acts import claim, create, create_embedded
from tenure.testing.contracts.harness import ContractHarness, LeasingStore
from tenure.testing.factories import approve, cancel, end_run, fencing_of, start_step


class RunnableDiscovery(ContractHarness):
    async def test_worker_lists_runnable_runs(self, store: LeasingStore) -> None:
        """Filtered and in pages, as summaries."""
        wanted = [await create(store, queue="gpu") for _ in range(3)]
        await create(store, queue="cpu")
        where = RunFilter(queue="gpu")
        first = await store.list_runnable(where, limit=2)
        second = await store.list_runnable(where, limit=2, cursor=first.cursor)
        assert (*first.items, *second.items) == tuple(summarize(run) for run in wanted)
        assert {type(item) for item in first.items} == {RunSummary}
        assert second.cursor is None

    async def test_highest_priority_comes_first_then_oldest(self, store: LeasingStore) -> None:
        runs = [await create(store, priority=priority) for priority in (0, 5, -5, 5, 0)]
        expected = [runs[index].run_id for index in (1, 3, 0, 4, 2)]
        assert await _runnable(store) == expected
        paged: list[str] = []
        cursor: str | None = None
        while True:
            page = await store.list_runnable(limit=2, cursor=cursor)
            paged += [item.run_id for item in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert paged == expected

    async def test_pages_hold_every_run_once_whatever_is_inserted(
        self, store: LeasingStore
    ) -> None:
        there = {(await create(store, priority=number % 3)).run_id for number in range(7)}
        seen: list[str] = []
        cursor: str | None = None
        priorities = iter((100, 1, -100, 0, 2, 50, -50, 1, 0, -1))
        while True:
            page = await store.list_runnable(limit=2, cursor=cursor)
            seen += [item.run_id for item in page.items]
            cursor = page.cursor
            if cursor is None or len(seen) > 30:
                break
            await create(store, priority=next(priorities, 100))
        assert len(seen) == len(set(seen))
        assert there <= set(seen)

    async def test_run_claimed_between_pages_only_disappears(self, store: LeasingStore) -> None:
        runs = [await create(store) for _ in range(5)]
        first = await store.list_runnable(limit=2)
        await claim(store, runs[1].run_id)
        await claim(store, runs[2].run_id)
        second = await store.list_runnable(limit=10, cursor=first.cursor)
        assert [item.run_id for item in second.items] == [runs[3].run_id, runs[4].run_id]

    async def test_foreign_cursor_is_refused(self, store: LeasingStore) -> None:
        for _ in range(3):
            await create(store)
        other = (await store.list_runs(limit=1)).cursor
        assert other is not None
        for cursor in ("nonsense", other):
            with pytest.raises(InvalidCursor):
                await store.list_runnable(cursor=cursor)
        mine = (await store.list_runnable(limit=1)).cursor
        assert mine is not None
        with pytest.raises(InvalidCursor):
            await store.list_runs(cursor=mine)

    async def test_owned_runs_are_not_runnable_until_their_lease_expires(
        self, store: LeasingStore
    ) -> None:
        run = await create(store)
        held = await claim(store, run.run_id, seconds=self.lease_seconds)
        assert await _runnable(store) == []
        await store.update_run(start_step(held))
        assert await _runnable(store) == []
        await self.expire_leases()
        assert await _runnable(store) == [run.run_id]

    @pytest.mark.parametrize("status", ["success", "failed", "canceled", "interrupted"])
    async def test_ended_runs_are_not_runnable(self, store: LeasingStore, status: str) -> None:
        run = await create_embedded(store, recovery=Recovery.RESUME)
        await store.update_run(end_run(run, RunStatus(status)))
        assert await _runnable(store) == []

    async def test_canceled_queued_run_is_not_runnable(self, store: LeasingStore) -> None:
        await store.update_run(cancel(await create(store)))
        assert await _runnable(store) == []

    async def test_embedded_run_is_never_up_for_grabs(self, store: LeasingStore) -> None:
        await create_embedded(store)
        assert await _runnable(store) == []

    async def test_run_waits_for_its_time(self, store: LeasingStore) -> None:
        first = await create(store)
        assert first.created_at is not None
        later = first.created_at + timedelta(seconds=self.lease_seconds)
        waiting = await create(store, run_after=later)
        past = await create(store, run_after=first.created_at - timedelta(hours=1))
        assert set(await _runnable(store)) == {first.run_id, past.run_id}
        await self.expire_leases()
        assert set(await _runnable(store)) == {first.run_id, past.run_id, waiting.run_id}

    async def test_run_waits_for_approval(self, store: LeasingStore) -> None:
        run = await create(store, approval=Approval(required=True))
        assert await _runnable(store) == []
        await store.update_run(approve(run))
        assert await _runnable(store) == [run.run_id]

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (RunFilter(), "abc"),
            (RunFilter(statuses=frozenset({RunStatus.RUNNING})), "c"),
            (RunFilter(workflow_name="backup"), "b"),
            (RunFilter(queue="gpu"), "b"),
            (RunFilter(labels={"team": "web"}), "a"),
            (RunFilter(owner_id="owner-c"), "c"),
            (RunFilter(owner_id="owner-x"), ""),
            (RunFilter(held=True), "c"),
            (RunFilter(unapproved=True), ""),
        ],
        ids=str,
    )
    async def test_filters(self, store: LeasingStore, where: RunFilter, expected: str) -> None:
        expired = await create_embedded(
            store, "owner-c", seconds=self.lease_seconds, recovery=Recovery.RESUME
        )
        names = {
            (await create(store, labels={"team": "web"})).run_id: "a",
            (await create(store, queue="gpu", workflow_name="backup")).run_id: "b",
            expired.run_id: "c",
        }
        await create_embedded(store, "owner-x", queue="gpu", labels={"team": "web"})
        await self.expire_leases()
        page = await store.list_runnable(where)
        assert "".join(sorted(names[item.run_id] for item in page.items)) == expected

    async def test_filter_by_time_of_creation(self, store: LeasingStore) -> None:
        first = await create(store)
        await self.pass_time(0.01)
        second = await create(store)
        at = second.created_at
        before = await store.list_runnable(RunFilter(created_to=at))
        after = await store.list_runnable(RunFilter(created_from=at))
        assert [item.run_id for item in before.items] == [first.run_id]
        assert [item.run_id for item in after.items] == [second.run_id]

    async def test_listing_takes_nothing(self, store: LeasingStore) -> None:
        run = deepcopy(await create(store))
        await store.list_runnable()
        assert await store.get_run(run.run_id) == run
        (item,) = (await store.list_runnable()).items
        item.labels["vandal"] = "here"
        assert await store.get_run(run.run_id) == run

    async def test_claimed_run_is_held_before_it_begins_and_until_it_is_released(
        self, store: LeasingStore
    ) -> None:
        run, _ = await create(store), await create(store)
        held = await claim(store, run.run_id)
        (found,) = (await store.list_runs(RunFilter(held=True))).items
        assert (found.run_id, found.status) == (run.run_id, RunStatus.QUEUED)
        await store.release_lease(run.run_id, fencing_of(held), "release-it")
        assert (await store.list_runs(RunFilter(held=True))).items == ()

    async def test_released_resumable_run_comes_back_with_its_priority(
        self, store: LeasingStore
    ) -> None:
        low, high = await create(store), await create(store, priority=9)
        held = await claim(store, high.run_id)
        assert await _runnable(store) == [low.run_id]
        await store.release_lease(high.run_id, fencing_of(held), "release-it")
        assert await _runnable(store) == [high.run_id, low.run_id]


async def _runnable(store: LeasingStore) -> list[str]:
    return [item.run_id for item in (await store.list_runnable()).items]
