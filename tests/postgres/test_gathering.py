"""Reads that are asked for together, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.stores.postgres.gathering import Gathering


class Shelf:
    """Answers when told to, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.open = asyncio.Event()
        self.broken = False

    async def read(self, run_ids: Sequence[str]) -> dict[str, object]:
        self.asked.append(list(run_ids))
        await self.open.wait()
        if self.broken:
            raise StoreUnavailable("away")
        return {run_id: object() for run_id in run_ids if run_id != "missing"}


async def test_what_is_asked_for_meanwhile_shares_the_next_trip() -> None:
    shelf = Shelf()
    gathering: Gathering[object] = Gathering(shelf.read, 1)
    first = asyncio.create_task(gathering.get("first"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(gathering.get(name)) for name in ("a", "b", "missing")]
    await asyncio.sleep(0)
    shelf.open.set()
    done = await asyncio.gather(first, *others, return_exceptions=True)
    assert shelf.asked == [["first"], ["a", "b", "missing"]]
    assert isinstance(done[3], RunNotFound)


@pytest.mark.parametrize("at_once", [1, 2])
async def test_who_asks_again_as_soon_as_he_is_answered_is_served(at_once: int) -> None:
    """By then nothing is on its way any more, also if the loop does not know it yet."""
    shelf = Shelf()
    shelf.open.set()
    gathering: Gathering[object] = Gathering(shelf.read, at_once)

    async def asks_and_asks() -> None:
        for name in ("a", "b", "c"):
            await gathering.get(name)

    async with asyncio.timeout(5):
        await asyncio.gather(*(asks_and_asks() for _ in range(3)))


async def test_two_who_want_the_same_run_get_a_value_each() -> None:
    shelf = Shelf()
    shelf.open.set()
    gathering: Gathering[object] = Gathering(shelf.read, 1)
    one, other = await asyncio.gather(gathering.get("a"), gathering.get("a"))
    assert one is not other


async def test_who_stops_waiting_holds_up_nobody() -> None:
    shelf = Shelf()
    gathering: Gathering[object] = Gathering(shelf.read, 1)
    first = asyncio.create_task(gathering.get("first"))
    while not shelf.asked:
        await asyncio.sleep(0)
    impatient, patient = (asyncio.create_task(gathering.get("a")) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    shelf.open.set()
    await asyncio.gather(first, patient)
    assert shelf.asked == [["first"], ["a"]]


async def test_failure_is_everybodys() -> None:
    shelf = Shelf()
    shelf.broken = True
    shelf.open.set()
    gathering: Gathering[object] = Gathering(shelf.read, 1)
    asked = [gathering.get(name) for name in ("a", "b")]
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, StoreUnavailable) for each in done)
    shelf.broken = False
    with pytest.raises(RunNotFound):
        await gathering.get("missing")
