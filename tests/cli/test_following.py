"""Following a run whose owner gives no sign of life: for how long, and what is said."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.cli.follow import follow
from tenure.cli.view import View
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.model.update import RecordedEvent
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import claim, create
from tenure.testing.factories import cancel, embedded_run, end_run, start_step

OWNER = "node7/boot-1/4026531836/812/99887766/0badcafe"
PATIENCE = 10.0


class Onlooker:
    """A view that remembers; ``noticed`` is set with each notice."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.notices: list[str] = []
        self.noticed = asyncio.Event()

    async def record(self, event: RecordedEvent) -> None:
        self.types.append(event.type)

    def notice(self, text: str) -> None:
        self.notices.append(text)
        self.noticed.set()

    @property
    def view(self) -> View:
        return View((self,), self.notice)


async def begun(store: InMemoryStore, **fields: Any) -> RunSnapshot:
    new = embedded_run(OWNER, **fields)
    await store.create_run(new)
    run = await store.get_run(new.snapshot.run_id)
    await store.update_run(start_step(run))
    return await store.get_run(run.run_id)


async def explained(run: RunSnapshot) -> str:
    return f"why it is {run.status}"


async def followed(
    store: Any, run: RunSnapshot, onlooker: Onlooker, *, dead: bool = False, patience: float = 0.0
) -> RunSnapshot:
    async with asyncio.timeout(PATIENCE):
        return await follow(
            store, run.run_id, onlooker.view, 0.001, lambda owner: dead, explained, patience
        )


async def test_nobody_waits_for_an_interrupted_process() -> None:
    store, onlooker = InMemoryStore(), Onlooker()
    run = await begun(store)
    assert await followed(store, run, onlooker, dead=True) == run
    assert "step.running" in onlooker.types
    assert onlooker.notices == []


@pytest.mark.parametrize(
    ("recovery", "dead", "said"),
    [
        (Recovery.RESUME, True, "is gone; the next worker goes on with the run"),
        (Recovery.RESUME, False, "has not been heard of; the next worker goes on with the run"),
        (Recovery.INTERRUPT, False, "has not been heard of; if it is gone: tenure reconcile"),
    ],
)
async def test_while_somebody_could_finish_it_one_notice_and_patience(
    recovery: Recovery, dead: bool, said: str
) -> None:
    clock = ManualClock()
    store, onlooker = InMemoryStore(clock), Onlooker()
    run = await begun(store, recovery=recovery, seconds=60)
    clock.advance(61)
    following = asyncio.create_task(followed(store, run, onlooker, dead=dead))
    async with asyncio.timeout(PATIENCE):
        await onlooker.noticed.wait()
    await store.update_run(end_run(run, RunStatus.FAILED))
    assert (await following).status is RunStatus.FAILED
    assert onlooker.notices == [f"process 812 on node7 {said}"]


async def test_process_that_ends_while_it_is_asked_for_is_waited_for_by_nobody() -> None:
    store, onlooker = InMemoryStore(), Onlooker()
    run = await begun(store)
    looks = iter([False])
    async with asyncio.timeout(PATIENCE):
        await follow(
            store, run.run_id, onlooker.view, 0.001, lambda owner: next(looks, True), explained
        )
    assert onlooker.notices == []


async def test_an_owner_that_lives_is_not_doubted() -> None:
    store, onlooker = InMemoryStore(), Onlooker()
    run = await begun(store)
    following = asyncio.create_task(followed(store, run, onlooker, dead=False))
    await store.update_run(end_run(run, RunStatus.FAILED))
    assert (await following).status is RunStatus.FAILED
    assert onlooker.notices == []


class EndsMeanwhile:
    """A store whose run ends, and with it its process, right after the first look at it."""

    def __init__(self, store: InMemoryStore) -> None:
        self._store = store
        self._looks: Iterator[int] = iter(range(100))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_run(self, run_id: str) -> RunSnapshot:
        run = await self._store.get_run(run_id)
        if next(self._looks) == 0:
            await self._store.update_run(end_run(run, RunStatus.FAILED))
        return run


async def test_a_process_that_ended_after_its_work_is_not_taken_for_a_dead_one() -> None:
    store, onlooker = InMemoryStore(), Onlooker()
    run = await begun(store)
    ended = await followed(EndsMeanwhile(store), run, onlooker, dead=True)
    assert ended.status is RunStatus.FAILED
    assert onlooker.types[-1] == "run.failed"
    assert onlooker.notices == []


class Looks:
    """A store that counts how often somebody looked at a run, and says so."""

    def __init__(self, store: InMemoryStore) -> None:
        self._store = store
        self._some = asyncio.Condition()
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_run(self, run_id: str) -> RunSnapshot:
        async with self._some:
            self._number += 1
            self._some.notify_all()
        return await self._store.get_run(run_id)

    async def more(self, number: int) -> None:
        async with self._some:
            wanted = self._number + number
            await self._some.wait_for(lambda: self._number >= wanted)


async def test_why_nobody_begins_a_run_is_said_once() -> None:
    store, onlooker = Looks(InMemoryStore()), Onlooker()
    run = await create(store)
    following = asyncio.create_task(followed(store, run, onlooker))
    async with asyncio.timeout(PATIENCE):
        await onlooker.noticed.wait()
        await store.more(5)
    await store.update_run(cancel(run))
    assert (await following).status is RunStatus.CANCELED
    assert onlooker.notices == ["why it is queued"]


@pytest.mark.parametrize("claimed", [False, True], ids=["too soon", "about to begin"])
async def test_run_that_may_begin_any_moment_needs_no_explanation(claimed: bool) -> None:
    store, onlooker = Looks(InMemoryStore()), Onlooker()
    run = await create(store)
    if claimed:
        run = await claim(store, run.run_id, OWNER)
    patience = 0.0 if claimed else 1000.0
    following = asyncio.create_task(followed(store, run, onlooker, patience=patience))
    async with asyncio.timeout(PATIENCE):
        await store.more(5)
    held = run if claimed else await claim(store, run.run_id, OWNER)
    await store.update_run(end_run(held, RunStatus.FAILED))
    assert (await following).status is RunStatus.FAILED
    assert onlooker.notices == []
