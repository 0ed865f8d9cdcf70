"""Workers of this process on one store, with an action in the hands of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.actions import new_registry
from tenure.model.update import RecordedEvent
from tenure.ports.environment import BootTime
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.system import SystemClock
from tenure.testing.faults import METHODS
from tests.postgres.database import TestDatabase
from tests.runtime.puppets import PATIENCE, Between, Puppet

SHORT = tenure.Timing(lease_duration=1.2, renew_interval=0.15, control_interval=0.02, margin=0.2)
"""A lease that a test can wait for."""
NEXT = tenure.Timing(lease_duration=60, renew_interval=0.15, control_interval=0.02)
"""Of who takes over: soon sure that it has been in touch for long enough."""
LONG = tenure.Timing(lease_duration=60, renew_interval=20, control_interval=0.02)
"""A lease that outlives the test."""

EACH_STORE = pytest.mark.parametrize(
    "store_url",
    [
        "memory",
        pytest.param("sqlite", marks=pytest.mark.slow),
        pytest.param("postgres", marks=pytest.mark.slow),
    ],
    indirect=True,
)
"""For what a worker does with its store, not with its runs: elsewhere memory is enough."""


class LeapingClock(SystemClock):
    """Goes as this machine's does, and jumps when told: leases of any length end at once."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = timedelta()

    def leap(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() + self._ahead

    def boot_time(self) -> BootTime:
        boot_id, nanoseconds = super().boot_time()
        return BootTime(boot_id, nanoseconds + round(self._ahead.total_seconds() * 1e9))


async def eventually(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = holds()
            if await found if isawaitable(found) else found:
                return
            await asyncio.sleep(0.01)


@pytest.fixture
def clock() -> LeapingClock:
    """Of the store, where it is in memory or in a file."""
    return LeapingClock()


@pytest.fixture
def act() -> Puppet:
    return Puppet()


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind = getattr(request, "param", "memory")
    if kind == "postgres":
        database: TestDatabase = request.getfixturevalue("postgres_going")
        database.empty()
        return database.url
    return "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
async def store(store_url: str, clock: LeapingClock, tmp_path: Path) -> AsyncIterator[Any]:
    if store_url == "memory:":
        yield InMemoryStore(clock)
    elif store_url.startswith("sqlite"):
        async with await SQLiteStore.open(tmp_path / "runs.db", clock=clock) as opened:
            yield opened
    else:
        async with tenure.open_store(store_url) as served:
            yield served


async def _cut_off(*_: Any, **__: Any) -> Any:
    raise tenure.StoreUnavailable("cut off")


class Workers:
    """Those that a test started, and a runner to submit and ask with."""

    def __init__(self, store: Any, act: Puppet, clock: LeapingClock) -> None:
        self.store = store
        self.clock = clock
        self.actions = {**new_registry(), act.spec.name: act}
        self.runner = tenure.Runner(store, actions=self.actions, timing=LONG)
        self._running: dict[tenure.Worker, asyncio.Task[None]] = {}
        self._doors: dict[tenure.Worker, Between] = {}

    def start(self, *, timing: tenure.Timing = LONG, store: Any = None, **rest: Any) -> Any:
        pace = tenure.Pace(
            concurrency=rest.pop("concurrency", 20),
            claim_batch=rest.pop("claim_batch", 10),
            poll_interval=rest.pop("poll_interval", 0.02),
            drain_timeout=rest.pop("drain_timeout", 30.0),
        )
        rest.setdefault("actions", self.actions)
        rest.setdefault("reconcile_interval", 0.05)
        door = store or Between(self.store)
        worker = tenure.Worker(door, pace=pace, timing=timing, **rest)
        self._doors[worker] = door
        self._running[worker] = asyncio.create_task(worker.run())
        return worker

    def task_of(self, worker: tenure.Worker) -> asyncio.Task[None]:
        return self._running.pop(worker)

    async def kill(self, worker: tenure.Worker) -> None:
        """It stops and says not a word more, as if its process had died."""
        task, door = self._running.pop(worker), self._doors.pop(worker)
        door.rules.update(dict.fromkeys(METHODS, _cut_off))
        for _ in range(2):
            task.cancel()
            await asyncio.wait([task], timeout=0.02)
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([task])

    async def lose(self, worker: tenure.Worker) -> None:
        """As ``kill``, and so long ago that its leases have ended."""
        await self.kill(worker)
        self.clock.leap(LONG.lease_duration)

    async def returns(self, worker: tenure.Worker) -> None:
        """Its ``run`` does, by itself."""
        async with asyncio.timeout(PATIENCE):
            await self._running.pop(worker)

    async def submit(self, workflow: tenure.Workflow, **options: Any) -> str:
        run = await self.runner.submit(workflow, tenure.RunOptions(**options))
        return run.run_id

    async def run(self, run_id: str) -> tenure.RunSnapshot:
        return await self.runner.get_run(run_id)

    async def until(
        self, run_id: str, holds: Callable[[tenure.RunSnapshot], bool]
    ) -> tenure.RunSnapshot:
        async with asyncio.timeout(PATIENCE):
            while not holds(run := await self.run(run_id)):
                await asyncio.sleep(0.01)
        return run

    async def ended(self, run_id: str) -> tenure.RunSnapshot:
        return await self.until(run_id, lambda run: run.ended)

    async def events(self, run_id: str) -> list[RecordedEvent]:
        found: list[RecordedEvent] = await self.store.read_events(run_id)
        return found

    async def close(self) -> None:
        for worker in list(self._running):
            await self.kill(worker)
        await self.runner.close()


@pytest.fixture
async def workers(store: Any, act: Puppet, clock: LeapingClock) -> AsyncIterator[Workers]:
    started = Workers(store, act, clock)
    yield started
    await started.close()
