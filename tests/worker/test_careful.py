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
from tenure.model.leases import ClaimRequest, Purpose
from tests.runtime.puppets import PATIENCE, Between, Outage, Puppet, step, workflow
from tests.worker.conftest import NEXT, Workers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("store_url", ["memory"], indirect=True),
]

ONE = workflow(step("one"))
CAREFUL = NEXT.renew_interval
EVERY = 0.05
"""Seconds between two words of a worker that it is there (``Workers.start``)."""
A_FREEZE = 2 * CAREFUL
LONGER = tenure.Timing(lease_duration=60, renew_interval=2, control_interval=0.02)
"""What follows an error is still soon after it, also on a busy machine."""
TOO_LATE = LONGER.renew_interval / 2 + 0.1
"""Seconds for an answer."""


class Door(Between):
    """Notes when expired leases were asked for, and what happens in its worker's claims."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.rules["claim_runs"] = self._claim
        self.asked: list[bool] = []
        """Whether for expired leases too, of each claim."""
        self.bold: list[float] = []
        self.careful = 0
        self.takes = 0.0
        self.freezes = False
        self.fails_once = False
        self.happened_at: float | None = None
        self._news = asyncio.Condition()

    async def _claim(self, real: Any, request: ClaimRequest) -> Any:
        if request.purpose is not Purpose.EXECUTE:
            return await real(request)
        async with self._news:
            self.asked.append(request.expired)
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
        if self.fails_once:
            self.fails_once = False
            self.happened_at = asyncio.get_running_loop().time()
            raise StoreUnavailable("the network is down")
        return claimed

    async def happened(self) -> float:
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self.happened_at is not None)
        assert self.happened_at is not None
        return self.happened_at

    async def next_is_bold(self) -> bool:
        """Whether the first claim since ``asked`` was emptied asks for expired leases."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self.asked)
        return self.asked[0]

    async def bold_after(self, moment: float) -> float:
        """When expired leases were first asked for after that."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: any(each > moment for each in self.bold))
        return min(each for each in self.bold if each > moment)


class Once:
    """The next call of that method is refused, or its answer comes late."""

    def __init__(self, store: Between, method: str, *, late: bool) -> None:
        self._store = store
        self._method = method
        self._late = late
        self.over = asyncio.Event()
        store.rules[method] = self._rule

    async def _rule(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        del self._store.rules[self._method]
        if self._late:
            await asyncio.sleep(TOO_LATE)
        self.over.set()
        if not self._late:
            raise StoreUnavailable("the network is down")
        return await real(*args, **kwargs)

    async def happens(self) -> None:
        await asyncio.wait_for(self.over.wait(), PATIENCE)


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


async def test_just_started_on_a_store_with_much_to_look_through(
    workers: Workers, door: Door
) -> None:
    """What a dead process left behind is marked first: only then it is there to judge others."""

    async def take_long(real: Any, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(CAREFUL)
        return await real(*args, **kwargs)

    served: list[float] = []

    async def serves(real: Any, *args: Any) -> Any:
        door.rules.clear()
        door.rules["claim_runs"] = door._claim
        served.append(asyncio.get_running_loop().time())
        return await real(*args)

    door.rules |= {"list_runs": take_long, "list_owners": take_long, "heartbeat": serves}
    bold = await at_work(workers, door)
    assert bold >= served[0] + CAREFUL - EVERY


async def test_after_an_error(workers: Workers, door: Door) -> None:
    await at_work(workers, door)
    door.fails_once = True
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

    await at_work(workers, door, poll_interval=1.0)
    door.rules["find_waiting"] = fail
    door.careful = 0
    await workers.submit(ONE)
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


class TestWithoutRoom:
    """It claims nothing while the store is away, and hears of it all the same: the room comes with
    the first write that goes through, before its neighbours could renew."""

    @pytest.fixture
    async def full(self, workers: Workers, door: Door, act: Puppet) -> None:
        """A worker that took what had expired until it had no room left."""
        await at_work(workers, door, LONGER, concurrency=1)
        act.hold("one/local")
        await workers.submit(ONE)
        await act.begins("one/local")
        door.asked.clear()

    @pytest.mark.usefixtures("full")
    async def test_after_nothing_at_all(self, door: Door, act: Puppet) -> None:
        act.let_go("one/local")
        assert await door.next_is_bold()

    @pytest.mark.usefixtures("full")
    @pytest.mark.parametrize("late", [False, True], ids=["refused", "late"])
    async def test_after_a_write(self, door: Door, act: Puppet, *, late: bool) -> None:
        trouble = Once(door, "update_runs", late=late)
        act.let_go("one/local")
        await trouble.happens()
        assert not await door.next_is_bold()

    @pytest.mark.usefixtures("full")
    @pytest.mark.parametrize(("method", "late"), [("renew_leases", True), ("heartbeat", False)])
    async def test_after_a(self, door: Door, act: Puppet, method: str, late: bool) -> None:
        await Once(door, method, late=late).happens()
        act.let_go("one/local")
        assert not await door.next_is_bold()


@pytest.mark.parametrize("late", [False, True], ids=["refused", "late"])
async def test_after_a_run_that_could_not_begin_at_once(
    workers: Workers, door: Door, act: Puppet, *, late: bool
) -> None:
    """One that waited alone."""
    setattr(door, "listen", workers.store.listen)  # noqa: B010
    await at_work(workers, door, LONGER, concurrency=1, poll_interval=1.0)
    trouble = Once(door, "begin_run", late=late)
    await workers.submit(ONE)
    await trouble.happens()
    door.asked.clear()
    assert not await door.next_is_bold()


async def test_after_a_look_for_what_waits_alone_that_took_long(
    workers: Workers, door: Door
) -> None:
    setattr(door, "listen", workers.store.listen)  # noqa: B010
    await at_work(workers, door, LONGER, poll_interval=1.0)
    door.asked.clear()
    look = Once(door, "find_waiting", late=True)
    for _ in range(2):  # so that it finds more than it can begin by itself, and claims
        await workers.submit(ONE)
    await look.happens()
    assert not await door.next_is_bold()


async def test_after_an_error_of_who_reconciles(workers: Workers, door: Door) -> None:
    await at_work(workers, door, LONGER)
    usual, failed = door.rules["claim_runs"], asyncio.Event()

    async def fail(real: Any, request: ClaimRequest) -> Any:
        if request.purpose is Purpose.EXECUTE:
            return await usual(real, request)
        door.rules["claim_runs"] = usual
        door.asked.clear()
        failed.set()
        raise StoreUnavailable("the network is down")

    door.rules["claim_runs"] = fail
    await asyncio.wait_for(failed.wait(), PATIENCE)
    assert not await door.next_is_bold()


async def test_claim_after_claim_without_a_rest_is_no_freeze(workers: Workers, door: Door) -> None:
    """Or what was lost would wait for as long as there is plenty to do."""
    timing = tenure.Timing(lease_duration=60, renew_interval=1)
    await at_work(workers, door, timing, claim_batch=1)
    door.careful, door.takes = 0, 0.05
    for run_id in [await workers.submit(ONE) for _ in range(20)]:
        await workers.ended(run_id)
    assert not door.careful
