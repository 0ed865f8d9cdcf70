"""A worker whose store neither answers nor lets go: a call that is cancelled fails instead, as a
driver's may, and whoever bears errors asks again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tenure
from tenure.testing.faults import METHODS
from tenure.worker import claims
from tests.runtime.puppets import PATIENCE, Between, Puppet, step, workflow
from tests.worker.conftest import Workers

ONE = workflow(step("one"))


class Silence:
    """Of every call of a store, from when it ``begins``."""

    def __init__(self, store: Between) -> None:
        self._broken = asyncio.Event()
        self._on = False
        self.asked = asyncio.Event()
        store.rules.update(dict.fromkeys(METHODS, self._rule))

    def begins(self) -> None:
        self._on = True

    async def _rule(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._on:
            return await real(*args, **kwargs)
        self.asked.set()
        try:
            await self._broken.wait()
        except asyncio.CancelledError:
            raise tenure.StoreUnavailable("cannot leave while busy") from None


@pytest.fixture
async def silence(workers: Workers, act: Puppet) -> tuple[asyncio.Task[None], tenure.Worker]:
    """A worker at work, whose store is silent from now on."""
    store = Between(workers.store)
    silence = Silence(store)
    act.hold("one/local")
    worker = workers.start(store=store)
    await workers.submit(ONE)
    await act.begins("one/local")
    silence.begins()
    await asyncio.wait_for(silence.asked.wait(), PATIENCE)
    return workers.task_of(worker), worker


async def test_cancelled_twice_it_stops(
    silence: tuple[asyncio.Task[None], tenure.Worker], act: Puppet
) -> None:
    running, _ = silence
    for _ in range(2):
        running.cancel()
        await asyncio.wait([running], timeout=0.05)
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([running])
    assert running.cancelled()
    assert act.cancelled == ["one/local"]


@pytest.mark.slow
async def test_drained_it_gives_up_giving_back(
    silence: tuple[asyncio.Task[None], tenure.Worker],
    act: Puppet,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(claims, "_GIVING_BACK", 0.2)
    running, worker = silence
    worker.drain(at_once=True)
    async with asyncio.timeout(PATIENCE):
        await running
    assert act.cancelled == ["one/local"]
    assert "the store does not take 1 run back" in caplog.text


async def test_its_tasks_are_killed_before_anything_that_waits_for_the_store(
    workers: Workers,
) -> None:
    back, killed = asyncio.Event(), asyncio.Event()

    class Deaf(Puppet):
        """To whoever asks it to end, once: as a task is that traps SIGTERM."""

        async def apply(self, *args: Any) -> Any:
            try:
                return await super().apply(*args)
            except asyncio.CancelledError:
                try:
                    await asyncio.Event().wait()
                finally:
                    killed.set()

    class NeverLetsGo(Between):
        @asynccontextmanager
        async def listen(self, *_: Any) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await back.wait()

    act = Deaf()
    act.hold("one/local")
    workers.actions[act.spec.name] = act
    running = workers.task_of(workers.start(store=NeverLetsGo(workers.store)))
    await workers.submit(ONE)
    await act.begins("one/local")
    for _ in range(2):
        running.cancel()
        await asyncio.wait([running], timeout=0.05)
    async with asyncio.timeout(PATIENCE):
        await killed.wait()
    assert not running.done()
    back.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([running])
