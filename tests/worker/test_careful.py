"""When a worker takes leases that merely ran out, and when it gives their owners time to come back.

An owner that did not renew may have been unable to: the store was away, the machine stood still.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import tenure
from tenure.model.errors import StoreUnavailable
from tenure.model.leasing import ClaimRequest, Purpose
from tests.runtime.puppets import PATIENCE, Between, Outage, step, workflow
from tests.worker.conftest import NEXT, Workers

pytestmark = pytest.mark.parametrize("store_url", ["memory"], indirect=True)

CAREFUL = NEXT.renew_interval
EVERY = 0.05
"""Seconds between two words of a worker that it is there (``Workers.start``)."""
A_FREEZE = 2 * CAREFUL


class Door(Between):
    """Notes when expired leases were asked for, and what happens in its worker's claims."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.rules["claim_runs"] = self._claim
        self.bold: list[float] = []
        self.careful = 0
        self.takes = 0.0
        self.freezes = False
        self.fails = False
        self.happened_at: float | None = None
        self._news = asyncio.Condition()

    async def _claim(self, real: Any, request: ClaimRequest) -> Any:
        if request.purpose is not Purpose.EXECUTE:
            return await real(request)
        async with self._news:
            if request.expired:
                self.bold.append(asyncio.get_running_loop().time())
            else:
                self.careful += 1
            self._news.notify_all()
        claimed = await real(request)
        await asyncio.sleep(self.takes)
        if self.freezes:
            self.freezes = False
            freeze()
            self.happened_at = asyncio.get_running_loop().time()
        if self.fails:
            self.fails = False
            self.happened_at = asyncio.get_running_loop().time()
            raise StoreUnavailable("the network is down")
        return claimed

    async def happened(self) -> float:
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self.happened_at is not None)
        assert self.happened_at is not None
        return self.happened_at

    async def bold_after(self, moment: float) -> float:
        """When expired leases were first asked for after that."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: any(each > moment for each in self.bold))
        return min(each for each in self.bold if each > moment)


def freeze() -> None:
    """The whole process, as a suspended machine does."""
    time.sleep(A_FREEZE)


@pytest.fixture
def door(workers: Workers) -> Door:
    return Door(workers.store)


async def at_work(workers: Workers, door: Door, timing: tenure.Timing = NEXT, **rest: Any) -> float:
    """From when on a worker takes what has expired."""
    begun = asyncio.get_running_loop().time()
    workers.start(store=door, timing=timing, **rest)
    return await door.bold_after(begun)


async def test_just_started(workers: Workers, door: Door) -> None:
    begun = asyncio.get_running_loop().time()
    assert await at_work(workers, door) >= begun + CAREFUL
    assert door.careful


async def test_after_an_error(workers: Workers, door: Door) -> None:
    await at_work(workers, door)
    door.fails = True
    happened = await door.happened()
    assert await door.bold_after(happened) >= happened + CAREFUL


async def test_after_a_freeze_while_it_rests(workers: Workers, door: Door) -> None:
    await at_work(workers, door)
    freeze()
    awake = asyncio.get_running_loop().time()
    assert await door.bold_after(awake) >= awake + CAREFUL


async def test_after_a_freeze_while_it_waits_for_an_answer(workers: Workers, door: Door) -> None:
    await at_work(workers, door)
    door.freezes = True
    happened = await door.happened()
    assert await door.bold_after(happened) >= happened + CAREFUL


async def test_after_an_error_of_a_look_for_what_waits_alone(workers: Workers, door: Door) -> None:
    """Woken in between, it looks; what it cannot see there it claims at once."""
    setattr(door, "listen", workers.store.listen)  # noqa: B010
    asked = asyncio.Event()

    async def fail(real: Any, *args: Any, **kwargs: Any) -> Any:
        asked.set()
        raise StoreUnavailable("the network is down")

    await at_work(workers, door, poll_interval=PATIENCE / 8)
    door.rules["find_waiting"] = fail
    door.careful = 0
    await workers.submit(workflow(step("one")))
    await asyncio.wait_for(asked.wait(), PATIENCE)
    happened = asyncio.get_running_loop().time()
    assert await door.bold_after(happened) >= happened + CAREFUL
    assert door.careful


async def test_while_the_store_does_not_take_that_it_is_there(workers: Workers, door: Door) -> None:
    """Its disk is full: looks go well, and nobody can renew."""
    await at_work(workers, door)
    outage = Outage(door, "heartbeat")
    outage.on = True
    await outage.refuses()
    door.bold.clear()
    await outage.refuses(outage.refused + 2 * round(CAREFUL / EVERY))
    assert not door.bold
    outage.on = False
    happened = asyncio.get_running_loop().time()
    assert await door.bold_after(happened) >= happened + CAREFUL - 2 * EVERY


@pytest.mark.slow
async def test_claim_after_claim_without_a_rest_is_no_freeze(workers: Workers, door: Door) -> None:
    """Or what was lost would wait for as long as there is plenty to do."""
    timing = tenure.Timing(lease_duration=60, renew_interval=1)
    await at_work(workers, door, timing, claim_batch=1)
    door.careful, door.takes = 0, 0.05
    for run_id in [await workers.submit(workflow(step("one"))) for _ in range(20)]:
        await workers.ended(run_id)
    assert not door.careful
