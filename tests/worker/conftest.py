"""Workers of this process on one store, with an action in the hands of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.actions import new_registry
from tenure.model.update import RecordedEvent
from tenure.testing.faults import METHODS
from tests.postgres.database import TestDatabase
from tests.runtime.puppets import PATIENCE, Between, Puppet

SHORT = tenure.Timing(lease_duration=1.2, renew_interval=0.15, control_interval=0.02, margin=0.2)
"""A lease that a test can wait for."""
NEXT = tenure.Timing(lease_duration=60, renew_interval=0.15, control_interval=0.02)
"""Of who takes over: soon sure that it has been in touch for long enough."""
LONG = tenure.Timing(lease_duration=60, renew_interval=20, control_interval=0.02)
"""A lease that outlives the test."""

_STORES = [
    "memory",
    pytest.param("sqlite", marks=pytest.mark.slow),
    pytest.param("postgres", marks=pytest.mark.slow),
]


@pytest.fixture
def act() -> Puppet:
    return Puppet()


@pytest.fixture(params=_STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        database: TestDatabase = request.getfixturevalue("postgres_going")
        database.empty()
        return database.url
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Any]:
    async with tenure.open_store(store_url) as opened:
        yield opened


async def _cut_off(*_: Any, **__: Any) -> Any:
    raise tenure.StoreUnavailable("cut off")


class Workers:
    """Those that a test started, and a runner to submit and ask with."""

    def __init__(self, store: Any, act: Puppet) -> None:
        self.store = store
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
async def workers(store: Any, act: Puppet) -> AsyncIterator[Workers]:
    started = Workers(store, act)
    yield started
    await started.close()
