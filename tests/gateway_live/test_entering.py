"""How a viewer of the feed comes from its own cursor to what all share: in the worst moments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from tenure.gateway.live.feed import AllRuns, view_all
from tenure.gateway.live.streams import LogPart
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import FeedPage
from tenure.testing.contracts.acts import create_embedded
from tests.gateway_live.viewers import SOON
from tests.gateway_live.writers import says


class Between:
    """A feed on which something happens just before it is read behind ``cursor``, or just after."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.before: dict[str | None, Any] = {}
        self.after: dict[str | None, Any] = {}

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> FeedPage:
        if after in self.before:
            await self.before.pop(after)()
        found: FeedPage = await self._store.read_changes(after, limit=limit)
        if after in self.after:
            await self.after.pop(after)()
        return found

    async def newest_change(self) -> str:
        newest: str = await self._store.newest_change()
        return newest


async def told(parts: AsyncGenerator[LogPart[str], None], runs: AllRuns, number: int) -> list[str]:
    """The texts of so many events."""
    found: list[str] = []
    async with asyncio.timeout(SOON):
        while len(found) < number:
            step = asyncio.ensure_future(anext(parts))
            while not step.done():
                await runs.look()
                await asyncio.sleep(0)
            found += [each["data"]["text"] for each in _events(step.result())]
    return found


def _events(part: LogPart[str]) -> list[Any]:
    page = msgspec.json.decode(part.data.partition(b"data: ")[2])
    events: list[Any] = page["events"]
    return events


async def test_what_happens_between_the_two_readings_is_told_once(memory: Any) -> None:
    run = await create_embedded(memory)
    start = await memory.newest_change()
    run = await says(memory, run, "one")
    feed = Between(memory)
    runs = AllRuns(feed)

    async def something() -> None:
        nonlocal run
        run = await says(memory, run, "two")

    parts = view_all(runs, await memory.newest_change(), lambda: None)
    entering = asyncio.ensure_future(runs.enter(start))
    await asyncio.sleep(0)
    feed.before[start] = something
    await runs.look()
    entry = await entering
    assert entry.number is not None
    assert [each["data"]["text"] for each in _events(entry.page)] == ["one", "two"]
    run = await says(memory, run, "three")
    await runs.look()
    rest = [runs.change(each) for each in range(entry.number + 1, runs.place + 1)]
    new = [event for change in rest for event in change.without(entry.told).events]
    assert [each.data for each in new] == [{"text": "three"}]
    assert await told(parts, runs, 2) == ["two", "three"]
    await parts.aclose()


async def test_who_comes_while_the_feed_is_read_waits_for_the_next_reading(memory: Any) -> None:
    """Else it would be told again what it had from another gateway."""
    run = await create_embedded(memory)
    feed = Between(memory)
    runs = AllRuns(feed)
    await runs.look()
    entering: list[asyncio.Future[Any]] = []

    async def somebody_comes() -> None:
        nonlocal run
        run = await says(memory, run, "known")
        entering.append(asyncio.ensure_future(runs.enter(await memory.newest_change())))
        await asyncio.sleep(0)

    feed.after[await memory.newest_change()] = somebody_comes
    await runs.look()
    await asyncio.sleep(0)
    assert not entering[0].done()
    await runs.look()
    entry = await entering[0]
    assert _behind(runs, entry.number) == []
    await says(memory, run, "new")
    await runs.look()
    assert _behind(runs, entry.number) == ["new"]


def _behind(runs: AllRuns, number: int) -> list[str]:
    pages = [runs.change(each) for each in range(number + 1, runs.place + 1)]
    return [str((event.data or {})["text"]) for page in pages for event in page.events]


async def test_viewer_goes_on_from_history_to_what_is_shared(memory: Any) -> None:
    run: RunSnapshot = await create_embedded(memory)
    start = await memory.newest_change()
    runs = AllRuns(memory)
    parts = view_all(runs, start, lambda: None)
    run = await says(memory, run, "one")
    assert await told(parts, runs, 1) == ["one"]
    run = await says(memory, run, "two")
    assert await told(parts, runs, 1) == ["two"]
    await parts.aclose()
