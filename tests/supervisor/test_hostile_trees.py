"""However a task is ended, and whatever it does against it: nothing of it is left, in time."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tenure.ports.execution import Command
from tenure.transports.local import LocalTransport
from tests.supervisor.hostile import (
    GRACE,
    PYTHON,
    RELAY,
    TREES,
    UP,
    left_of,
    nothing_left,
    tree,
)
from tests.supervisor.promise import AT_LEISURE, Promise, measured
from tests.supervisor.supervising import NO_CGROUPS, begin_with
from tests.transports.keeping import HERE, Kept, running, runs

pytestmark = pytest.mark.slow

SEEDS = range(1, 6)

numbers = itertools.count()


@pytest.fixture
async def promise() -> AsyncIterator[Promise]:
    async with measured() as promise:
        yield promise


def new_run() -> str:
    return f"run-{os.getpid()}-{next(numbers)}"


async def cancelled(transport: LocalTransport, promise: Promise, name: str, folder: Path) -> None:
    run_id, kept = new_run(), Kept()
    async with running(transport, tree(name, run_id, folder), kept) as task:
        await kept.shows(UP)
        assert left_of(run_id, folder)
        async with promise.kept(GRACE):
            task.cancel()
            await asyncio.wait({task})
        assert task.cancelled()
    assert left_of(run_id, folder) == set()


async def timed_out(transport: LocalTransport, promise: Promise, name: str, folder: Path) -> None:
    """Its time is over as soon as the tree stands."""
    run_id, kept, limit = new_run(), Kept(), asyncio.timeout(None)

    async def limited() -> None:
        with pytest.raises(TimeoutError):
            async with limit:
                await transport.run(HERE, tree(name, run_id, folder), kept)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(limited())
        await kept.shows(UP)
        assert left_of(run_id, folder)
        async with promise.kept(GRACE):
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.wait({task})
    assert left_of(run_id, folder) == set()


async def killed(promise: Promise, name: str, folder: Path) -> None:
    run_id = new_run()
    async with runner(name, run_id, folder) as (process, supervisor):
        assert left_of(run_id, folder)
        async with promise.kept(GRACE):
            process.kill()
            await nothing_left(run_id, folder)
        async with asyncio.timeout(AT_LEISURE):
            while runs(supervisor):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def runner(
    name: str, run_id: str, folder: Path, trust: float = 0
) -> AsyncIterator[tuple[Process, int]]:
    """A runner whose tree stands, and the number of its supervisor."""
    arguments = (name, run_id, str(folder), str(trust))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.supervisor.runner", *arguments), stdout=PIPE
    )
    assert process.stdout is not None
    try:
        said = await asyncio.wait_for(process.stdout.readline(), AT_LEISURE)
        word, number = said.split()
        assert word == b"up"
        yield process, int(number)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.wait()


@pytest.mark.parametrize("name", TREES)
async def test_cancel(
    transport: LocalTransport,
    promise: Promise,
    name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await cancelled(transport, promise, name, tmp_path)
    assert caplog.text == "", "nobody complains of what was ended on purpose"


@pytest.mark.parametrize(
    "name", ["deaf daemon", "no environment", "no marks", "supervisor stopped", "bomb"]
)
async def test_time_out(
    transport: LocalTransport, promise: Promise, name: str, tmp_path: Path
) -> None:
    await timed_out(transport, promise, name, tmp_path)


@pytest.mark.parametrize("name", TREES)
async def test_kill_of_the_runner(promise: Promise, name: str, tmp_path: Path) -> None:
    await killed(promise, name, tmp_path)


async def test_a_relay_that_holds_the_output_of_a_task_that_ended(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays in the group of the task, so it may not hold up the runner."""
    begin_with(monkeypatch, NO_CGROUPS)
    run_id, relay = new_run(), RELAY.replace("os.setsid()", "")
    command = Command(
        argv=("/bin/sh", "-c", f"{PYTHON} '{relay}' & exit 3"),
        env={"TENURE_RUN_ID": run_id},
        grace=GRACE,
    )
    end = await asyncio.wait_for(transport.run(HERE, command, Kept()), AT_LEISURE)
    assert end.code == 3
    assert left_of(run_id, tmp_path) == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "rounds"),
    [(0, 6), *(pytest.param(seed, 40, marks=pytest.mark.long) for seed in SEEDS)],
)
async def test_one_after_another(
    transport: LocalTransport, promise: Promise, tmp_path: Path, seed: int, rounds: int
) -> None:
    luck = random.Random(seed)
    for number in range(rounds):
        name = luck.choice(list(TREES))
        folder = tmp_path / str(number)
        folder.mkdir()
        match number % 3:
            case 0:
                await cancelled(transport, promise, name, folder)
            case 1:
                await timed_out(transport, promise, name, folder)
            case _:
                await killed(promise, name, folder)
