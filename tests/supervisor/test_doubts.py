"""Processes that lost their marks where tasks have no groups, while several tasks run: nobody ends
what may be another's, and nobody says that it is gone."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tenure.model.errors import StillRunning
from tenure.ports.execution import Command, Exit
from tenure.transports.local import LocalTransport
from tests.supervisor.hostile import FORGETFUL, GRACE, PYTHON, UP, left_of, tree
from tests.supervisor.supervising import NO_CGROUPS, begin_with
from tests.supervisor.test_hostile_trees import new_run
from tests.transports.keeping import HERE, Kept, running, runs, sh

pytestmark = pytest.mark.slow

STAYS = (
    FORGETFUL
    + """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.execve("/bin/sh", ["sh", "-c", "echo up; exec sleep 25"], {})
"""
)
IN_ITS_SESSION = f"({PYTHON} '{STAYS}' &); sleep 25"


@pytest.fixture(autouse=True)
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_with(monkeypatch, NO_CGROUPS)


class Trees:
    """Two of the same, each of a run of its own."""

    def __init__(self, place: Path) -> None:
        self.runs = [(new_run(), place / name) for name in ("first", "second")]
        self.tasks: list[asyncio.Task[Exit]] = []
        for _, folder in self.runs:
            folder.mkdir()

    async def stand(
        self, transport: LocalTransport, scope: AsyncExitStack, commands: list[Command]
    ) -> None:
        for command in commands:
            kept = Kept()
            self.tasks.append(await scope.enter_async_context(running(transport, command, kept)))
            await kept.shows(UP)

    def left(self, number: int) -> set[int]:
        return left_of(*self.runs[number])

    async def cancel(self, number: int) -> None:
        self.tasks[number].cancel()
        await asyncio.wait({self.tasks[number]})


async def test_nobody_ends_or_confirms_what_may_be_anothers(
    transport: LocalTransport, tmp_path: Path
) -> None:
    trees = Trees(tmp_path)
    async with AsyncExitStack() as scope:
        await trees.stand(transport, scope, [tree("no marks", *run) for run in trees.runs])
        await trees.cancel(1)
        # The first daemon was there before the second task, so only the other one is in doubt.
        with pytest.raises(StillRunning, match="may be another task's") as doubt:
            await trees.tasks[1]
        assert any(str(pid) in str(doubt.value) for pid in trees.left(1))
        assert not any(str(pid) in str(doubt.value) for pid in trees.left(0))
        assert len(trees.left(0)) > 1
        await trees.cancel(0)
        assert trees.tasks[0].cancelled()
        assert trees.left(0) | trees.left(1) == set(), "whosever they were"


async def test_what_stayed_in_the_session_of_its_task_is_known(
    transport: LocalTransport, tmp_path: Path
) -> None:
    trees = Trees(tmp_path)
    commands = [
        sh(IN_ITS_SESSION, env={"TENURE_RUN_ID": run}, cwd=str(folder), grace=GRACE)
        for run, folder in trees.runs
    ]
    async with AsyncExitStack() as scope:
        await trees.stand(transport, scope, commands)
        for number in (1, 0):
            assert len(trees.left(number)) > 1
            await trees.cancel(number)
            assert trees.tasks[number].cancelled()
            assert trees.left(number) == set()


@pytest.mark.parametrize("name", ["task and run", "run only"])
async def test_whoever_names_its_run_is_known_while_another_runs(
    transport: LocalTransport, tmp_path: Path, name: str
) -> None:
    trees = Trees(tmp_path)
    async with AsyncExitStack() as scope:
        await trees.stand(transport, scope, [tree(name, *run) for run in trees.runs])
        for number in (1, 0):
            assert len(trees.left(number)) > 1
            await trees.cancel(number)
            assert trees.tasks[number].cancelled()
            assert trees.left(number) == set()


async def test_a_daemon_without_marks_outlives_its_task_and_later_ones(
    transport: LocalTransport, tmp_path: Path
) -> None:
    run_id, kept = new_run(), Kept()
    daemon = f'{PYTHON} \'{FORGETFUL}os.setsid(); os.execve("/bin/sleep", ["sleep", "25"], {{}})\''
    await transport.run(HERE, sh(f"{daemon} >/dev/null 2>&1 & echo $!"), kept)
    [pid] = await kept.numbers(1)
    async with running(transport, tree("no environment", run_id, tmp_path), kept) as task:
        await kept.shows(UP)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
    await transport.close()
    assert runs(pid)
    os.kill(pid, 9)
