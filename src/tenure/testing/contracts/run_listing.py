"""Lists of runs: newest first, in pages nobody can upset, filtered."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.errors import InvalidCursor
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSummary, summarize
from tenure.model.status import RunStatus
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import at_once, create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.factories import change_run, end_run, new_run

FOREIGN_CURSORS = ["nonsense", "AAAA", "W10", "eyJhIjoxfQ", "🤖", "' OR 1=1 --", "a" * 5000]


class RunListing(ContractHarness):
    async def test_runs_are_listed_newest_first_as_summaries(self, store: RunStateStore) -> None:
        runs = [await create(store, vars={"n": number}) for number in range(3)]
        page = await store.list_runs()
        assert page.items == tuple(summarize(run) for run in reversed(runs))
        assert {type(item) for item in page.items} == {RunSummary}
        assert page.cursor is None

    async def test_empty_store_lists_nothing(self, store: RunStateStore) -> None:
        page = await store.list_runs()
        assert (page.items, page.cursor) == ((), None)

    async def test_pages_hold_every_run_once_whatever_is_inserted(
        self, store: RunStateStore
    ) -> None:
        there = [(await create(store)).run_id for _ in range(7)]
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = await store.list_runs(limit=2, cursor=cursor)
            seen += [item.run_id for item in page.items]
            cursor = page.cursor
            if cursor is None:
                break
            assert len(page.items) == 2
            await create(store)
        assert seen == list(reversed(there))

    async def test_pages_hold_every_run_once_while_others_write(self, store: RunStateStore) -> None:
        there = {(await create(store)).run_id for _ in range(10)}
        seen: list[str] = []

        async def read_all() -> None:
            cursor: str | None = None
            while True:
                page = await store.list_runs(limit=3, cursor=cursor)
                seen.extend(item.run_id for item in page.items)
                cursor = page.cursor
                if cursor is None:
                    return

        async def insert() -> None:
            for _ in range(10):
                await store.create_run(new_run())

        _, errors = await at_once([read_all(), insert()])
        assert not errors
        assert len(seen) == len(set(seen))
        assert there <= set(seen)

    async def test_change_of_a_run_does_not_move_it(self, store: RunStateStore) -> None:
        first, second = await create_embedded(store), await create_embedded(store, "owner-b")
        await store.update_run(change_run(first, message="busy"))
        listed = [item.run_id for item in (await store.list_runs()).items]
        assert listed == [second.run_id, first.run_id]

    async def test_last_page_that_is_just_full_has_no_cursor(self, store: RunStateStore) -> None:
        for _ in range(4):
            await create(store)
        first = await store.list_runs(limit=2)
        assert first.cursor is not None
        assert (await store.list_runs(limit=2, cursor=first.cursor)).cursor is None

    async def test_filters_hold_on_every_page(self, store: RunStateStore) -> None:
        for number in range(9):
            await create(store, queue="odd" if number % 2 else "even")
        where = RunFilter(queue="even")
        first = await store.list_runs(where, limit=3)
        rest = await store.list_runs(where, limit=3, cursor=first.cursor)
        queues = [item.queue for item in (*first.items, *rest.items)]
        assert queues == ["even"] * 5
        assert rest.cursor is None

    @pytest.mark.parametrize("cursor", FOREIGN_CURSORS, ids=ascii)
    async def test_foreign_cursor_is_refused(self, store: RunStateStore, cursor: str) -> None:
        await create(store)
        with pytest.raises(InvalidCursor):
            await store.list_runs(cursor=cursor)

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (RunFilter(), "abcd"),
            (RunFilter(statuses=frozenset({RunStatus.QUEUED})), "a"),
            (RunFilter(statuses=frozenset({RunStatus.RUNNING, RunStatus.FAILED})), "bcd"),
            (RunFilter(statuses=frozenset({RunStatus.SUCCESS})), ""),
            (RunFilter(workflow_name="backup"), "bd"),
            (RunFilter(workflow_name="back"), ""),
            (RunFilter(queue="gpu"), "c"),
            (RunFilter(labels={"team": "web"}), "ac"),
            (RunFilter(labels={"team": "web", "env": "prod"}), "c"),
            (RunFilter(labels={"team": "prod"}), ""),
            (RunFilter(owner_id="owner-b"), "b"),
            (RunFilter(owner_id="owner-c"), "c"),
            (RunFilter(owner_id="owner-d"), ""),
            (RunFilter(workflow_name="backup", owner_id="owner-b"), "b"),
            (RunFilter(workflow_name="backup", owner_id="owner-c"), ""),
            (RunFilter(queue="gpu", statuses=frozenset({RunStatus.RUNNING})), "c"),
            (RunFilter(queue="gpu", statuses=frozenset({RunStatus.QUEUED})), ""),
            (RunFilter(queue="gpu", workflow_name="backup"), ""),
            (RunFilter(owner_id="owner-b", statuses=frozenset({RunStatus.RUNNING})), "b"),
            (RunFilter(owner_id="owner-b", statuses=frozenset({RunStatus.QUEUED})), ""),
            (RunFilter(queue="half a pair: \ud800"), ""),
            (RunFilter(labels={"team": "\ud800"}), ""),
            (RunFilter(workflow_name="\ud800"), ""),
        ],
    )
    async def test_filters(self, store: RunStateStore, where: RunFilter, expected: str) -> None:
        both: dict[str, Any] = {"labels": {"team": "web", "env": "prod"}, "queue": "gpu"}
        names = {
            (await create(store, labels={"team": "web"})).run_id: "a",
            (await create_embedded(store, "owner-b", workflow_name="backup")).run_id: "b",
            (await create_embedded(store, "owner-c", **both)).run_id: "c",
        }
        failed = await create_embedded(store, "owner-d", workflow_name="backup")
        await write(store, end_run(failed, RunStatus.FAILED))
        names[failed.run_id] = "d"
        found = [names[item.run_id] for item in (await store.list_runs(where)).items]
        assert "".join(sorted(found)) == expected
        assert found == sorted(found, reverse=True)

    async def test_filter_by_time_of_creation(self, store: RunStateStore) -> None:
        """From is inclusive, to is exclusive: neighbouring windows share no run."""
        runs = []
        for _ in range(3):
            runs.append(await create(store))
            await self.pass_time(0.01)
        first, second, third = runs
        assert second.created_at is not None

        async def listed(**window: Any) -> list[str]:
            page = await store.list_runs(RunFilter(**window))
            return [item.run_id for item in page.items]

        at = second.created_at
        assert await listed(created_from=at) == [third.run_id, second.run_id]
        assert await listed(created_to=at) == [first.run_id]
        tick = timedelta(microseconds=1)
        assert await listed(created_from=at, created_to=at + tick) == [second.run_id]
        assert await listed(created_from=at + tick, created_to=at + tick) == []
        ever = {
            "created_from": datetime.fromisoformat("0001-01-01T00:00:00+14:00"),
            "created_to": datetime.fromisoformat("9999-12-31T23:59:59-14:00"),
        }
        assert await listed(**ever) == [third.run_id, second.run_id, first.run_id]

    async def test_listed_summary_is_as_fresh_as_the_snapshot(self, store: RunStateStore) -> None:
        run = await write(store, end_run(await create_embedded(store), RunStatus.FAILED))
        assert (await store.list_runs()).items == (summarize(run),)
