"""What happens to all runs, for all who look.

Cursors of the feed cannot be compared, so a viewer cannot tell whether its own is before or behind
what is kept here. It is let in by the one task that reads: that first reads to the end of the feed,
then whatever comes behind the viewer's cursor. From there on the viewer shares what is read next.
Only what was written between those two readings could come to it a second time, and that is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from tenure.gateway.live.frames import Frame, message
from tenure.gateway.live.watched import Growing, Part
from tenure.model.events import RecordedEvent
from tenure.ports.change_feed import ChangeFeed
from tenure.runtime.patience import ENDLESS, surely
from tenure.wire.full import shown_as
from tenure.wire.listings import ChangePage

_PAGE = 200
_MOST_PAGES = 20
"""Read in one look: others want to be let in."""
_FEW_PAGES = 3
"""Read for who is let in; who has more to read does so for himself first."""


class Change(NamedTuple):
    """A page of the feed. ``number`` counts the pages that were read here."""

    number: int
    cursor: str
    events: tuple[RecordedEvent, ...]

    def without(self, told: dict[str, int]) -> Change:
        """What is newer than the versions somebody was told."""
        new = tuple(each for each in self.events if each.version > told.get(each.run_id, 0))
        return self._replace(events=new)


class Entry(NamedTuple):
    """How a viewer was let in: ``page`` comes first, then what was read here behind ``number``,
    but for ``told``. ``None``: there is more to read before."""

    page: Part[str]
    number: int | None
    told: dict[str, int]


class AllRuns(Growing[int]):
    """Places are the numbers of pages."""

    def __init__(self, feed: ChangeFeed) -> None:
        super().__init__(0)
        self.feed = feed
        self._cursor: str | None = None
        self._changes: dict[int, Change] = {}
        self._waiting: list[tuple[str | None, asyncio.Future[Entry]]] = []

    async def enter(self, cursor: str | None) -> Entry:
        """``None``: from the beginning."""
        if self.failure is not None:
            raise self.failure
        entered: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._waiting.append((cursor, entered))
        return await entered

    def fail(self, error: Exception) -> None:
        super().fail(error)
        for _, entered in self._waiting:
            if not entered.done():
                entered.set_exception(error)

    def change(self, number: int) -> Change:
        return self._changes[number]

    async def look(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            await self._read_on()
            while waiting:
                cursor, entered = waiting[0]
                if not entered.done():
                    entry = await self._entry(cursor)
                    if not entered.done():
                        entered.set_result(entry)
                del waiting[0]
        except BaseException:
            self._waiting[:0] = waiting
            raise

    async def _read_on(self) -> None:
        if self._cursor is None:
            self._cursor = await self.feed.newest_change()
        for _ in range(_MOST_PAGES):
            before = self._cursor
            found = await self.feed.read_changes(before, limit=_PAGE)
            self._cursor = found.cursor
            if found.events:
                change = Change(self.place + 1, found.cursor, found.events)
                self._changes[change.number] = change
                self.publish([Frame(change.number, told(found.events, found.cursor))])
                for number in [n for n in self._changes if n <= self.kept_behind]:
                    del self._changes[number]
            if found.cursor == before:
                return

    async def _entry(self, cursor: str | None) -> Entry:
        if cursor is not None and cursor == self._cursor:
            return Entry(Part(cursor, b""), self.place, {})
        found = await self.feed.read_changes(cursor, limit=_PAGE)
        events = list(found.events)
        for _ in range(_FEW_PAGES):
            cursor = found.cursor
            found = await self.feed.read_changes(cursor, limit=_PAGE)
            events += found.events
            if found.cursor == cursor:
                newest = {each.run_id: each.version for each in events}
                return Entry(_page(events, cursor), self.place, newest)
        return Entry(_page(events, found.cursor), None, {})


def _page(events: Sequence[RecordedEvent], cursor: str) -> Part[str]:
    return Part(cursor, told(events, cursor) if events else b"")


def told(events: Sequence[RecordedEvent], cursor: str) -> bytes:
    page = ChangePage(events=tuple(events), after=cursor)
    return message(shown_as(ChangePage, page), place=cursor)


async def view_all(
    runs: AllRuns, cursor: str | None, hurry: Callable[[], None]
) -> AsyncGenerator[Part[str], None]:
    """All that comes behind ``cursor``, without end."""
    while True:
        async with aclosing(_older(runs.feed, cursor)) as older:
            async for part in older:
                yield part
                cursor = part.place
        hurry()
        entry = await runs.enter(cursor)
        cursor = entry.page.place
        if entry.page.data:
            yield entry.page
        if entry.number is None:
            continue
        async with aclosing(_shared(runs, entry.number, entry.told)) as shared:
            async for part in shared:
                yield part
                cursor = part.place


async def _older(feed: ChangeFeed, cursor: str | None) -> AsyncGenerator[Part[str], None]:
    """Page by page, as fast as the viewer takes them, until there is little left."""
    while True:
        found = await surely(partial(feed.read_changes, cursor, limit=_PAGE), ENDLESS)
        if found.events:
            yield Part(found.cursor, told(found.events, found.cursor))
        if found.cursor == cursor or len(found.events) < _PAGE:
            return
        cursor = found.cursor


async def _shared(
    runs: AllRuns, number: int, known: dict[str, int]
) -> AsyncGenerator[Part[str], None]:
    """What is read here, until this viewer is too far behind for what is kept."""
    while number >= runs.kept_behind:
        if known and runs.place > number:
            change = runs.change(number + 1).without(known)
            number += 1
            if change.events:
                known = {}  # what is new has begun
                yield Part(change.cursor, told(change.events, change.cursor))
            continue
        part = runs.behind(number)
        if part.data:
            number = part.place
            yield Part(runs.change(number).cursor, part.data)
        elif runs.failure is not None:
            raise runs.failure
        else:
            await runs.news()
