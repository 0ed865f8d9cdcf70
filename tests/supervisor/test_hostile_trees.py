"""However a task is ended, and whatever it does against it: nothing of it is left."""

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

from tenure.transports.local import LocalTransport
from tests.supervisor.hostile import GRACE, TREES, UP, left_of, nothing_left, tree
from tests.transports.keeping import HERE, Kept, running, runs

AT_LEISURE = 20.0
"""Seconds that a busy machine may take. The rounds of ``long`` hold it to what is promised."""
PROMISED = 2.0

numbers = itertools.count()


def new_run() -> str:
    return f"run-{os.getpid()}-{next(numbers)}"


async def cancelled(transport: LocalTransport, name: str, folder: Path, within: float) -> None:
    run_id, kept = new_run(), Kept()
    async with running(transport, tree(name, run_id, folder), kept) as task:
        await kept.shows(UP)
        assert left_of(run_id, folder)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), GRACE + within)
    assert left_of(run_id, folder) == set()


async def timed_out(transport: LocalTransport, name: str, folder: Path, within: float) -> None:
    run_id, kept = new_run(), Kept()
    promised = asyncio.timeout(0.3 + GRACE + within)
    with pytest.raises(TimeoutError):
        async with promised, asyncio.timeout(0.3):
            await transport.run(HERE, tree(name, run_id, folder), kept)
    assert not promised.expired()
    assert left_of(run_id, folder) == set()


async def killed(name: str, folder: Path, within: float) -> None:
    run_id = new_run()
    async with runner(name, run_id, folder) as (process, supervisor):
        assert left_of(run_id, folder)
        process.kill()
        await nothing_left(run_id, folder, GRACE + within)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", TREES)
async def test_cancel(
    transport: LocalTransport, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await cancelled(transport, name, tmp_path, AT_LEISURE)
    assert caplog.text == "", "nobody complains of what was ended on purpose"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deaf daemon", "no environment", "bomb"])
async def test_time_out(transport: LocalTransport, name: str, tmp_path: Path) -> None:
    await timed_out(transport, name, tmp_path, AT_LEISURE)


@pytest.mark.slow
@pytest.mark.parametrize("name", TREES)
async def test_kill_of_the_runner(name: str, tmp_path: Path) -> None:
    await killed(name, tmp_path, AT_LEISURE)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
async def test_two_hundred_rounds(transport: LocalTransport, tmp_path: Path, seed: int) -> None:
    """Forty for each seed."""
    await rounds(transport, tmp_path, random.Random(seed), 40, AT_LEISURE)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_two_hundred_rounds_end_in_time(transport: LocalTransport, tmp_path: Path) -> None:
    await rounds(transport, tmp_path, random.Random(5), 200, PROMISED)


async def rounds(
    transport: LocalTransport, place: Path, luck: random.Random, times: int, within: float
) -> None:
    for number in range(times):
        name = luck.choice(list(TREES))
        folder = place / str(number)
        folder.mkdir()
        match number % 3:
            case 0:
                await cancelled(transport, name, folder, within)
            case 1:
                await timed_out(transport, name, folder, within)
            case _:
                await killed(name, folder, within)
