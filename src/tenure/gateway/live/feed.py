"""The feed of all runs, and the loop that polls the store for all viewers.

Cursors of the feed cannot be compared, so a viewer cannot tell whether its own is before or after
the kept pages. The polling task admits it: it reads to the end of the feed, then from the viewer's
cursor. From there on the viewer shares the pages that are read next. Only events written between
those two reads could reach it twice, and they are known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from tenure.aio import ENDLESS, end, until_answered, wait_for_event
from tenure.gateway.live.streams import (
    Frame,
    GrowingLog,
    LogPart,
    OutputLog,
    RunJournal,
    WatchedLog,
    all_of_version,
    message,
    view,
)
from tenure.model.errors import StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Position, RecordedEvent
from tenure.ports.store import (
    ChangeFeed,
    EventLog,
    LogKey,
    LogSizes,
    LogStore,
    RunStateStore,
    RunVersions,
)
from tenure.wire.answers import shown_as
from tenure.wire.runs import ChangePage

_PAGE_VERSIONS = 200
_MAX_PAGES_PER_LOOK = 20
"""Pages read in one look, so that viewers waiting to enter are not delayed."""
_MAX_PAGES_PER_ENTRY = 3
"""Pages read for a viewer that enters; one with more to catch up reads those itself first."""


class Change(NamedTuple):
    """A page of the feed. ``number`` counts the pages read by this process."""

    number: int
    cursor: str
    events: tuple[RecordedEvent, ...]

    def without(self, told: dict[str, int]) -> Change:
        """The events newer than the given version of each run."""
        new = tuple(each for each in self.events if each.version > told.get(each.run_id, 0))
        return self._replace(events=new)


class Entry(NamedTuple):
    """How a viewer enters: ``page`` first, then the shared pages after ``number`` without the
    versions in ``told``. ``page`` ``None``: there is too much to catch up with first."""

    page: LogPart[str]
    number: int | None
    told: dict[str, int]


class AllRuns(GrowingLog[int]):
    """The feed. Positions are page numbers."""

    def __init__(self, feed: ChangeFeed) -> None:
        super().__init__(0)
        self.feed = feed
        self._cursor: str | None = None
        self._changes: dict[int, Change] = {}
        self._waiting: list[tuple[str | None, asyncio.Future[Entry]]] = []

    async def enter(self, cursor: str | None) -> Entry:
        """Enter at ``cursor``; ``None``: at the beginning."""
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
        for _ in range(_MAX_PAGES_PER_LOOK):
            before = self._cursor
            found = await self.feed.read_changes(before, limit=_PAGE_VERSIONS)
            self._cursor = found.cursor
            if found.events:
                change = Change(self.place + 1, found.cursor, found.events)
                self._changes[change.number] = change
                self.publish([Frame(change.number, encoded_page(found.events, found.cursor))])
                for number in [n for n in self._changes if n <= self.kept_behind]:
                    del self._changes[number]
            if found.cursor == before:
                return

    async def _entry(self, cursor: str | None) -> Entry:
        if cursor is not None and cursor == self._cursor:
            return Entry(LogPart(cursor, b""), self.place, {})
        found = await self.feed.read_changes(cursor, limit=_PAGE_VERSIONS)
        events = list(found.events)
        for _ in range(_MAX_PAGES_PER_ENTRY):
            cursor = found.cursor
            found = await self.feed.read_changes(cursor, limit=_PAGE_VERSIONS)
            events += found.events
            if found.cursor == cursor:
                newest = {each.run_id: each.version for each in events}
                return Entry(_page(events, cursor), self.place, newest)
        return Entry(_page(events, found.cursor), None, {})


def _page(events: Sequence[RecordedEvent], cursor: str) -> LogPart[str]:
    return LogPart(cursor, encoded_page(events, cursor) if events else b"")


def encoded_page(events: Sequence[RecordedEvent], cursor: str) -> bytes:
    page = ChangePage(events=tuple(events), after=cursor)
    return message(shown_as(ChangePage, page), place=cursor)


async def view_all(
    runs: AllRuns, cursor: str | None, hurry: Callable[[], None]
) -> AsyncGenerator[LogPart[str], None]:
    """Everything after ``cursor``, without end."""
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


async def _older(feed: ChangeFeed, cursor: str | None) -> AsyncGenerator[LogPart[str], None]:
    """Catch up page by page, at the viewer's speed, until little is left."""
    while True:
        found = await until_answered(
            partial(feed.read_changes, cursor, limit=_PAGE_VERSIONS), ENDLESS
        )
        if found.events:
            yield LogPart(found.cursor, encoded_page(found.events, found.cursor))
        if found.cursor == cursor or len(found.events) < _PAGE_VERSIONS:
            return
        cursor = found.cursor


async def _shared(
    runs: AllRuns, number: int, known: dict[str, int]
) -> AsyncGenerator[LogPart[str], None]:
    """The shared pages, until this viewer has fallen behind what is kept."""
    while number >= runs.kept_behind:
        if known and runs.place > number:
            change = runs.change(number + 1).without(known)
            number += 1
            if change.events:
                known = {}  # all further pages are new
                yield LogPart(change.cursor, encoded_page(change.events, change.cursor))
            continue
        part = runs.behind(number)
        if part.data:
            number = part.place
            yield LogPart(runs.change(number).cursor, part.data)
        elif runs.failure is not None:
            raise runs.failure
        else:
            await runs.news()


N = TypeVar("N")
Question = Callable[[Collection[N]], Awaitable[dict[N, int]]]


class Survey:
    """Finds out which watched logs have grown, with one query for all runs and one for all output;
    without such a query each log is looked at."""

    def __init__(self, store: object) -> None:
        self._questions: dict[type[WatchedLog[Any]], Question[Any]] = {}
        if isinstance(store, RunVersions):
            self._questions[RunJournal] = store.versions_of
        if isinstance(store, LogSizes):
            self._questions[OutputLog] = store.sizes_of

    async def take(self, watched: Iterable[GrowingLog[Any]]) -> None:
        """Set the sizes of the watched logs. ``StoreUnavailable``."""
        everything = list(watched)
        for kind, question in self._questions.items():
            asked = [each for each in everything if isinstance(each, kind)]
            if asked:
                sizes = await _known(question, {each.name for each in asked})
                for each in asked:
                    each.size = sizes.get(each.name)


async def _known(question: Question[N], names: Collection[N]) -> dict[N, int]:
    """Logs without an answer are looked at one by one, and so report their own errors."""
    try:
        return await question(names)
    except StoreUnavailable:
        raise
    except Exception:  # noqa: BLE001  (it occurs again in the single look)
        return {}


G = TypeVar("G", bound=GrowingLog[Any])

_log = logging.getLogger("tenure.gateway")

POLL_INTERVAL_S = 0.05
"""Seconds between two polls."""
_PAUSE_FACTOR = 4
"""Shortest pause as a multiple of the last poll's duration: spares a slow store."""
_MAX_PARALLEL_READS = 8
_MAX_PAUSE_S = 5.0


class PollLoop:
    """Polls the store for all viewers: one task, from first to last viewer. ``clock`` counts
    seconds."""

    def __init__(
        self, survey: Survey, clock: Callable[[], float], every: float = POLL_INTERVAL_S
    ) -> None:
        self._survey = survey
        self._clock = clock
        self._every = every
        self._watched: dict[Hashable, GrowingLog[Any]] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._store_away = False

    @property
    def idle(self) -> bool:
        """Whether there are no viewers and no polling."""
        return self._task is None and not self._watched

    @asynccontextmanager
    async def viewing(self, key: Hashable, make: Callable[[], G]) -> AsyncIterator[G]:
        """The log under ``key``, made for the first viewer; polled while this is entered."""
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = make()
        watched.viewers += 1
        self.hurry()
        try:
            yield cast(G, watched)
        finally:
            watched.viewers -= 1
            if not watched.viewers:
                del self._watched[key]
            if not self._watched:
                await self._stop()

    def hurry(self) -> None:
        """Poll now."""
        self._hurry.set()
        if self._task is None:
            self._task = asyncio.create_task(self._poll_forever())

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end(task)

    async def _poll_forever(self) -> None:
        while True:
            self._hurry.clear()
            began = self._clock()
            await self._poll()
            rest = min((self._clock() - began) * _PAUSE_FACTOR, _MAX_PAUSE_S)
            await wait_for_event(self._hurry, max(rest, self._every))

    async def _poll(self) -> None:
        watched = [w for w in self._watched.values() if not w.over and w.failure is None]
        if not await self._is_answered(self._survey.take(watched)):
            return
        left = iter([each for each in watched if not each.still])

        async def look() -> None:
            for each in left:
                await self._look_at(each)

        await asyncio.gather(*(look() for _ in range(_MAX_PARALLEL_READS)))

    async def _look_at(self, watched: GrowingLog[Any]) -> None:
        """A store that does not answer is asked again; other errors are passed to the viewers."""
        try:
            await self._is_answered(watched.look())
        except Exception as error:  # noqa: BLE001  (passed to the viewers)
            watched.fail(error)

    async def _is_answered(self, question: Awaitable[None]) -> bool:
        try:
            await question
        except StoreUnavailable as error:
            if not self._store_away:
                _log.warning("viewers wait: the store does not answer (%s)", error)
            self._store_away = True
            return False
        if self._store_away:
            _log.warning("the store answers again; viewers continue")
        self._store_away = False
        return True


class Live:
    """All live streams of this process. ``clock`` counts seconds; the store is polled ``every`` so
    many of them while there are viewers."""

    def __init__(
        self, store: RunStateStore, clock: Callable[[], float], *, every: float = POLL_INTERVAL_S
    ) -> None:
        self._store = store
        self._rounds = PollLoop(Survey(store), clock, every)

    @property
    def idle(self) -> bool:
        """Whether there are no viewers and no polling."""
        return self._rounds.idle

    async def run(
        self, log: EventLog, run: RunSnapshot, after: Position
    ) -> AsyncGenerator[LogPart[Position], None]:
        """Events of ``run`` after a position, until it has ended."""
        make = partial(RunJournal, log, run, after)
        async with (
            self._rounds.viewing(_journal_key(run), make) as journal,
            aclosing(view(journal, after)) as parts,
        ):
            async for part in parts:
                yield part

    async def all_runs(
        self, feed: ChangeFeed, cursor: str | None
    ) -> AsyncGenerator[LogPart[str], None]:
        """Events of all runs after ``cursor``; ``None``: from the beginning."""
        async with (
            self._rounds.viewing("all runs", partial(AllRuns, feed)) as runs,
            aclosing(view_all(runs, cursor, self._rounds.hurry)) as parts,
        ):
            async for part in parts:
                yield part

    async def output(
        self, logs: LogStore, run: RunSnapshot, key: LogKey, offset: int
    ) -> AsyncGenerator[LogPart[int], None]:
        """Output of a task from ``offset`` on, until it has ended."""
        if not isinstance(self._store, EventLog):
            async with aclosing(self._printed(logs, run, key, offset, None)) as parts:
                async for part in parts:
                    yield part
            return
        make = partial(RunJournal, self._store, run, all_of_version(run.version))
        async with (
            self._rounds.viewing(_journal_key(run), make) as journal,
            aclosing(self._printed(logs, run, key, offset, journal)) as parts,
        ):
            async for part in parts:
                yield part

    async def _printed(
        self,
        logs: LogStore,
        run: RunSnapshot,
        key: LogKey,
        offset: int,
        journal: RunJournal | None,
    ) -> AsyncGenerator[LogPart[int], None]:
        make = partial(OutputLog, self._store, logs, journal, run.run_id, key, offset)
        async with (
            self._rounds.viewing(("output", run.run_id, key), make) as output,
            aclosing(view(output, offset)) as parts,
        ):
            async for part in parts:
                yield part


def _journal_key(run: RunSnapshot) -> tuple[str, str, int | None]:
    """An ended run may still get annotations: then its journal is read anew."""
    return "run", run.run_id, run.version if run.ended else None
