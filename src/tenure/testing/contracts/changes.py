"""``ChangeFeed``: what happens to all runs, each event once and nothing lost."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

import pytest

from tenure.model.errors import InvalidCursor
from tenure.model.update import Effect, Event, Fencing, RecordedEvent, Update
from tenure.ports.store import ChangeFeed
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness, FeedingStore
from tenure.testing.factories import annotate, fencing_of, start_step, unique

Journals = dict[str, list[RecordedEvent]]

_SOON = 20.0
"""Seconds; for a machine that is very busy."""
_WRITERS = 8
_WRITES = 12


class ChangeFeedContract(ContractHarness):
    async def test_store_has_a_change_feed(self, store: FeedingStore) -> None:
        assert isinstance(store, ChangeFeed)

    async def test_empty_store_has_no_changes(self, store: FeedingStore) -> None:
        assert (await store.read_changes()).events == ()

    async def test_feed_has_the_journals_of_all_runs(self, store: FeedingStore) -> None:
        runs = [await create_embedded(store, f"owner-{number}") for number in range(3)]
        for run in runs:
            await write(store, start_step(run))
        journals = await _journals(store, [run.run_id for run in runs])
        assert _by_run(await _read(store, journals)) == journals

    @pytest.mark.parametrize("limit", [1, 2, 1000])
    async def test_pages_follow_each_other_without_gap_or_overlap(
        self, store: FeedingStore, limit: int
    ) -> None:
        runs = [await create_embedded(store, f"owner-{number}") for number in range(5)]
        for run in runs:
            await write(store, start_step(run))
        journals = await _journals(store, [run.run_id for run in runs])
        feed = await _read(store, journals, limit=limit)
        assert _by_run(feed) == journals
        assert feed == await _read(store, journals)

    async def test_cursor_at_the_end_opens_what_comes_next(self, store: FeedingStore) -> None:
        before = await create(store)
        feed = Reader(store)
        await feed.until(await _journals(store, [before.run_id]))
        run = await create(store)
        await write(store, annotate(run, found="later"))
        journals = await _journals(store, [before.run_id, run.run_id])
        await feed.until(journals)
        assert _by_run(feed.events) == journals

    async def test_newest_cursor_misses_nothing_from_now_on(self, store: FeedingStore) -> None:
        await create(store)
        feed = Reader(store, after=await store.newest_change())
        run = await create(store)
        journals = await _journals(store, [run.run_id])
        await feed.until(journals)
        assert _by_run(feed.events)[run.run_id] == journals[run.run_id]

    async def test_version_without_events_does_not_end_the_feed(self, store: FeedingStore) -> None:
        run = await create_embedded(store)
        run = await write(store, _says(run.run_id, run.version, fencing_of(run)))
        await write(store, start_step(run))
        journals = await _journals(store, [run.run_id])
        assert _by_run(await _read(store, journals, limit=1)) == journals

    async def test_reader_among_writers_loses_nothing_and_sees_nothing_twice(
        self, store: FeedingStore
    ) -> None:
        """Commits overtake each other; the reader is always as far as it can be."""
        feed = Reader(store, limit=7)
        writing = asyncio.gather(*(_history(store, i) for i in range(_WRITERS)))
        while not writing.done():
            await feed.read()
        journals = await _journals(store, await writing)
        await feed.until(journals)
        assert _by_run(feed.events) == journals

    @pytest.mark.parametrize("cursor", ["nonsense", "WyJydW5zIiwxXQ"])
    async def test_cursor_of_another_kind_is_refused(
        self, store: FeedingStore, cursor: str
    ) -> None:
        with pytest.raises(InvalidCursor):
            await store.read_changes(cursor)


async def _history(store: FeedingStore, number: int) -> str:
    run = await create_embedded(store, f"owner-{number}")
    for _ in range(_WRITES):
        update = _says(run.run_id, run.version, fencing_of(run), Event(type="run.note"))
        run = await write(store, update)
    return run.run_id


def _says(run_id: str, version: int, lease: Fencing, *events: Event) -> Update:
    return Update(
        run_id=run_id,
        update_id=unique("update"),
        base_version=version,
        lease=lease,
        effect=Effect(events=events),
    )


class Reader:
    """Goes on from where it was."""

    def __init__(self, store: ChangeFeed, limit: int = 1000, after: str | None = None) -> None:
        self.events: list[RecordedEvent] = []
        self._store = store
        self._limit = limit
        self._cursor = after

    async def read(self) -> None:
        changes = await self._store.read_changes(self._cursor, limit=self._limit)
        self.events += changes.events
        self._cursor = changes.cursor
        await asyncio.sleep(0)

    async def until(self, journals: Journals) -> None:
        """As far as these: a feed may be late."""
        wanted = {(event.run_id, event.position) for each in journals.values() for event in each}
        async with asyncio.timeout(_SOON):
            while wanted - {(event.run_id, event.position) for event in self.events}:
                await self.read()


async def _read(store: ChangeFeed, journals: Journals, limit: int = 1000) -> list[RecordedEvent]:
    reader = Reader(store, limit)
    await reader.until(journals)
    return reader.events


async def _journals(store: FeedingStore, run_ids: Iterable[str]) -> Journals:
    return {run_id: await store.read_events(run_id) for run_id in run_ids}


def _by_run(feed: Iterable[RecordedEvent]) -> Journals:
    found: Journals = defaultdict(list)
    for event in feed:
        found[event.run_id].append(event)
    return found
