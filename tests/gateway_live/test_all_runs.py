"""The feed of all runs: each event once, whoever comes when, and each run's in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tenure.model.snapshot import RunSnapshot
from tenure.testing.contracts.acts import create_embedded, write
from tenure.testing.factories import annotate
from tests.gateway_live.viewers import SOON, Told, Viewer, looking
from tests.gateway_live.writers import says

Gateways = Callable[..., Any]
Journals = dict[str, list[tuple[int, int]]]

_WRITERS = 6
_WRITES = 15


def told_by(pages: list[Told]) -> Journals:
    found: Journals = defaultdict(list)
    for page in pages:
        assert page.id == page.data["after"]
        for event in page.data["events"]:
            found[event["run_id"]].append((event["version"], event["seq"]))
    return found


async def journals(store: Any, runs: list[RunSnapshot]) -> Journals:
    return {
        run.run_id: [(e.version, e.seq) for e in await store.read_events(run.run_id)]
        for run in runs
    }


async def until_told(viewer: Viewer, wanted: Journals, pages: list[Told]) -> list[Told]:
    events = {(run_id, place) for run_id, each in wanted.items() for place in each}
    async with asyncio.timeout(SOON):
        while events - {(run_id, p) for run_id, each in told_by(pages).items() for p in each}:
            page = await viewer.next()
            assert page is not None
            pages.append(page)
    return pages


async def write_some(store: Any, owner: str) -> RunSnapshot:
    run = await create_embedded(store, owner)
    for number in range(_WRITES):
        run = await write(store, annotate(run, number=number))
        await asyncio.sleep(0)  # viewers come in between
    return run


async def test_viewers_who_come_while_much_happens_get_each_event_once(
    store: Any, gateways: Gateways
) -> None:
    gateway = await gateways(store)
    before = await write_some(store, "before")
    writing = asyncio.gather(*(write_some(store, f"owner-{i}") for i in range(_WRITERS)))

    async def view(pages: list[Told]) -> list[Told]:
        after = pages[-1].id if pages else None
        async with looking(gateway.address, "/v1/events", after=after) as viewer:
            coming_back = None
            if after is None:
                pages = await viewer.some(1)
                coming_back = asyncio.create_task(view(list(pages)))
            runs = [before, *await writing]
            pages = await until_told(viewer, await journals(store, runs), pages)
        if coming_back is not None:
            assert told_by(await coming_back) == told_by(pages)
        return pages

    seen = await asyncio.gather(*(view([]) for _ in range(5)))
    wanted = await journals(store, [before, *await writing])
    assert all(told_by(pages) == wanted for pages in seen)


async def test_who_comes_back_with_any_page_gets_the_rest(store: Any, gateways: Gateways) -> None:
    gateway = await gateways(store)
    async with looking(gateway.address, "/v1/events") as viewer:
        runs = [await create_embedded(store, f"owner-{number}") for number in range(2)]
        pages: list[Told] = []
        for number in range(4):
            run = runs[number % 2]
            await write(store, annotate(run, number=number))
            await until_told(viewer, await journals(store, runs), pages)
    wanted = await journals(store, runs)
    for number in range(len(pages)):
        rest = told_by(pages[number + 1 :])
        back = looking(gateway.address, "/v1/events?after=now", after=pages[number].id)
        async with back as viewer:
            assert told_by(await until_told(viewer, rest, [])) == rest
    assert told_by(pages) == wanted


async def test_from_now_on_is_what_happens_next(store: Any, gateways: Gateways) -> None:
    gateway = await gateways(store)
    await create_embedded(store)
    async with looking(gateway.address, "/v1/events?after=now") as viewer:
        run = await create_embedded(store, "owner-b")
        wanted = await journals(store, [run])
        told = told_by(await until_told(viewer, wanted, []))
    assert told[run.run_id] == wanted[run.run_id]


async def test_cursor_that_is_none_is_refused(memory: Any, gateways: Gateways) -> None:
    gateway = await gateways(memory)
    async with looking(gateway.address, "/v1/events", after="nonsense") as viewer:
        assert viewer.status == 400


@pytest.mark.slow
async def test_slow_viewer_of_the_feed_loses_nothing(memory: Any, gateways: Gateways) -> None:
    gateway = await gateways(memory)
    run = await create_embedded(memory)
    async with looking(gateway.address, "/v1/events?after=now", small=True) as viewer:
        for _ in range(150):
            run = await says(memory, run, "x" * 60_000)
        wanted = await journals(memory, [run])
        wanted[run.run_id] = wanted[run.run_id][1:]
        assert told_by(await until_told(viewer, wanted, [])) == wanted
