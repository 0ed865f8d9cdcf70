"""Lists of the few runs that must be found among any number of others: every runner asks for those
that somebody owns, and for those that nobody approved yet, every few seconds."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.model.query import RunFilter
from tenure.model.snapshot import Approval, summarize
from tenure.model.status import RunStatus
from tenure.model.update import Changes
from tenure.ports.store import RunStateStore
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.contracts.run_approval import ASKS, waiting
from tenure.testing.factories import approve, cancel, end_run, expire, owner_update

HELD, UNAPPROVED = RunFilter(held=True), RunFilter(unapproved=True)
QUEUED, RUNNING = frozenset({RunStatus.QUEUED}), frozenset({RunStatus.RUNNING})


class FewAmongMany(ContractHarness):
    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (HELD, "cd"),
            (RunFilter(held=True, statuses=QUEUED | RUNNING), "cd"),
            (RunFilter(held=True, statuses=QUEUED), ""),
            (RunFilter(held=True, owner_id="owner-d"), "d"),
            (RunFilter(held=True, workflow_name="backup"), "d"),
            (RunFilter(held=True, queue="gpu"), "d"),
            (RunFilter(held=True, labels={"team": "web"}), "c"),
            (RunFilter(held=True, labels={"team": "web"}, queue="gpu"), ""),
            (UNAPPROVED, "ab"),
            (RunFilter(unapproved=True, statuses=QUEUED), "ab"),
            (RunFilter(unapproved=True, statuses=RUNNING), ""),
            (RunFilter(unapproved=True, workflow_name="backup"), "b"),
            (RunFilter(unapproved=True, queue="gpu"), "b"),
            (RunFilter(unapproved=True, labels={"team": "web"}), "a"),
            (RunFilter(unapproved=True, labels={"team": "web"}, queue="gpu"), ""),
            (RunFilter(unapproved=True, owner_id="owner-c"), ""),
            (RunFilter(unapproved=True, held=True), ""),
        ],
    )
    async def test_few_are_found_among_others_like_them(
        self, store: RunStateStore, where: RunFilter, expected: str
    ) -> None:
        web = {"labels": {"team": "web"}}
        gpu = {"workflow_name": "backup", "queue": "gpu"}
        names = {
            (await create(store, approval=ASKS, **web)).run_id: "a",
            (await create(store, approval=ASKS, **gpu)).run_id: "b",
            (await create_embedded(store, "owner-c", **web)).run_id: "c",
            (await create_embedded(store, "owner-d", **gpu)).run_id: "d",
        }
        for like in (web, gpu):
            await create(store, **like)
            await create(store, approval=Approval(required=True, by="ann"), **like)
            await write(store, end_run(await create_embedded(store, **like), RunStatus.FAILED))
            await write(store, cancel(await create(store, approval=ASKS, **like)))
        found = [names.get(item.run_id, "?") for item in (await store.list_runs(where)).items]
        assert found == sorted(expected, reverse=True)

    @pytest.mark.parametrize("where", [HELD, UNAPPROVED], ids=["held", "unapproved"])
    async def test_few_are_each_on_one_page(self, store: RunStateStore, where: RunFilter) -> None:
        wanted = []
        for _ in range(5):
            new = create_embedded(store) if where.held else create(store, approval=ASKS)
            wanted.append(await new)
            await create(store)
        pages = [await store.list_runs(where, limit=2)]
        while pages[-1].cursor is not None:
            pages.append(await store.list_runs(where, limit=2, cursor=pages[-1].cursor))
        newest_first = [summarize(run) for run in reversed(wanted)]
        assert [item for page in pages for item in page.items] == newest_first
        assert [len(page.items) for page in pages] == [2, 2, 1]

    async def test_released_run_is_held_by_nobody(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        assert await _listed(store, HELD) == [run.run_id]
        released = await write(store, owner_update(run, Changes(), release=True))
        assert (released.status, released.owner_id) == (RunStatus.RUNNING, None)
        assert await _listed(store, HELD) == []

    async def test_run_whose_owner_is_lost_is_still_held(self, store: RunStateStore) -> None:
        run = await create_embedded(store, seconds=self.lease_seconds)
        await self.expire_leases()
        assert await _listed(store, HELD) == [run.run_id]

    @pytest.mark.parametrize("more", [{}, {"owner_id": "owner-a"}, {"statuses": RUNNING}])
    async def test_run_that_its_owner_was_asked_to_cancel_is_found(
        self, store: RunStateStore, more: dict[str, Any]
    ) -> None:
        """Not one that was canceled at once, nor one that ended in spite of it."""
        where = RunFilter(canceling=True, **more)
        run, other = await create_embedded(store), await create_embedded(store)
        await write(store, cancel(await create(store)))
        assert await _listed(store, where) == []
        other = await write(store, cancel(other))
        await write(store, cancel(run))
        await write(store, end_run(other, RunStatus.CANCELED))
        assert await _listed(store, where) == [run.run_id]

    async def test_approved_run_waits_no_more(self, store: RunStateStore) -> None:
        run, other = await create(store, approval=ASKS), await create(store, approval=ASKS)
        assert await _listed(store, UNAPPROVED) == [other.run_id, run.run_id]
        await store.update_run(approve(run))
        assert await _listed(store, UNAPPROVED) == [other.run_id]

    async def test_overdue_run_waits_until_somebody_ends_it(self, store: RunStateStore) -> None:
        run = await waiting(store, self.lease_seconds)
        await self.expire_leases()
        assert await _listed(store, UNAPPROVED) == [run.run_id]
        await store.update_run(expire(run))
        assert await _listed(store, UNAPPROVED) == []


async def _listed(store: RunStateStore, where: RunFilter) -> list[str]:
    return [item.run_id for item in (await store.list_runs(where)).items]
