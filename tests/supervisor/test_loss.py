"""Supervisors that are killed, frozen or broken: what they left is ended, the next one works."""

from __future__ import annotations

import asyncio
import os
import signal
from math import inf
from pathlib import Path

import pytest

from tenure.model.errors import NotStarted, StillRunning, SupervisorLost, TransportError
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor import client, processes
from tests.supervisor.hostile import UP, left_of, tree
from tests.supervisor.supervising import NO_CGROUPS, begin_with, supervisors
from tests.supervisor.test_hostile_trees import new_run
from tests.transports.keeping import HERE, Kept, running, runs, sh

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["setsid", "deaf", "double fork", "no environment", "disguised", "bomb", "stopped"]
)
async def test_the_tasks_of_a_killed_supervisor_are_ended_and_reported_as_lost(
    transport: LocalTransport, name: str, tmp_path: Path
) -> None:
    run_id, kept = new_run(), Kept()
    async with running(transport, tree(name, run_id, tmp_path), kept) as task:
        await kept.shows(UP)
        [supervisor] = supervisors()
        os.kill(supervisor, signal.SIGKILL)
        with pytest.raises(SupervisorLost, match=r"ended with its supervisor"):
            await asyncio.wait_for(asyncio.shield(task), 20)
        assert left_of(run_id, tmp_path) == set()


async def test_the_next_task_gets_a_new_supervisor(transport: LocalTransport) -> None:
    assert (await transport.run(HERE, sh("exit 3"), Kept())).code == 3
    [first] = supervisors()
    os.kill(first, signal.SIGKILL)
    while runs(first):
        await asyncio.sleep(0.01)
    assert (await transport.run(HERE, sh("exit 4"), Kept())).code == 4
    [second] = supervisors()
    assert second != first


async def test_all_its_tasks_are_lost_and_others_are_not(transport: LocalTransport) -> None:
    kept = [Kept() for _ in range(20)]
    commands = [sh("echo up; exec sleep 25") for _ in kept]
    lost = [
        asyncio.ensure_future(transport.run(HERE, command, each))
        for command, each in zip(commands, kept, strict=True)
    ]
    for each in kept:
        await each.shows(UP)
    [supervisor] = supervisors()
    os.kill(supervisor, signal.SIGKILL)
    await asyncio.wait([lost[0]])
    later = asyncio.ensure_future(transport.run(HERE, sh("sleep 0.1; exit 4"), Kept()))
    ends = await asyncio.gather(*lost, return_exceptions=True)
    assert {type(end) for end in ends} == {SupervisorLost}
    assert (await later).code == 4


async def test_a_task_that_ended_before_is_no_loss(transport: LocalTransport) -> None:
    """Its end was told, only a descendant still holds its output."""
    kept = Kept()
    command = sh("(echo up; sleep 0.5; echo late) & exit 3", grace=20)
    async with running(transport, command, kept) as task:
        await kept.shows(UP)
        await transport.run(HERE, sh("true"), Kept())
        [supervisor] = supervisors()
        os.kill(supervisor, signal.SIGKILL)
        assert (await task).code == 3


async def test_a_frozen_supervisor_goes_on_when_a_task_is_to_end(
    transport: LocalTransport, tmp_path: Path
) -> None:
    run_id, kept = new_run(), Kept()
    async with running(transport, tree("deaf", run_id, tmp_path, grace=0.1), kept) as task:
        await kept.shows(UP)
        [supervisor] = supervisors()
        os.kill(supervisor, signal.SIGSTOP)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert runs(supervisor), "nobody had to do without it"
        assert left_of(run_id, tmp_path) == set()


@pytest.mark.parametrize("what", ["a new task", "a lease that was renewed"])
async def test_a_frozen_supervisor_goes_on_when_it_is_told_anything(
    transport: LocalTransport, what: str
) -> None:
    """Else the ends of its tasks would never be told, where no time-out asks for them."""
    kept = Kept()
    async with running(transport, sh("kill -STOP $PPID; echo up; exit 3"), kept) as task:
        await kept.shows(UP)
        if what == "a new task":
            other = await asyncio.wait_for(transport.run(HERE, sh("exit 4"), Kept()), 20)
            assert other.code == 4
        else:
            transport.trust("any", inf, margin=8)
        assert (await asyncio.wait_for(task, 20)).code == 3


async def test_a_frozen_supervisor_ends_with_the_transport(transport: LocalTransport) -> None:
    await transport.run(HERE, sh("true"), Kept())
    [supervisor] = supervisors()
    os.kill(supervisor, signal.SIGSTOP)
    await asyncio.wait_for(transport.close(), client._END_TIMEOUT_S)
    assert not runs(supervisor)


async def test_a_supervisor_that_hangs_does_not_hold_up_a_cancel(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begin_with(
        monkeypatch,
        "import time\n"
        "from tenure.transports.supervisor.program import TaskTable\n"
        "TaskTable.end = lambda *_, **__: time.sleep(60)",
    )
    monkeypatch.setattr(client, "_ANSWER_TIMEOUT_S", 0.3)
    run_id, kept = new_run(), Kept()
    async with running(transport, tree("deaf", run_id, tmp_path, grace=0.1), kept) as task:
        await kept.shows(UP)
        [supervisor] = supervisors()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not runs(supervisor)
        assert left_of(run_id, tmp_path) == set()


async def test_a_supervisor_that_hangs_does_not_hold_up_the_close(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_with(
        monkeypatch,
        "import time\n"
        "from tenure.transports.supervisor.program import TaskTable\n"
        "TaskTable.end_all = lambda *_: time.sleep(60)",
    )
    monkeypatch.setattr(client, "_END_TIMEOUT_S", 0.3)
    await transport.run(HERE, sh("true"), Kept())
    [supervisor] = supervisors()
    await transport.close()
    assert not runs(supervisor)


async def test_signals_to_everybody_do_not_mean_it(transport: LocalTransport) -> None:
    """A service manager or a terminal tells all processes to end; it ends after its runner."""
    kept = Kept()
    script = "trap 'echo heard; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    async with running(transport, sh(script), kept) as task:
        await kept.shows(UP)
        [supervisor] = supervisors()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(supervisor, number)
        leader = await transport.run(HERE, sh("exit 4"), Kept())
        assert leader.code == 4
        assert supervisors() == {supervisor}
        task.cancel()
        await asyncio.wait({task})
        assert kept.stdout == b"up\nheard\n", "what it ignores, its tasks do not"


async def test_a_mistake_inside_ends_its_tasks_too(
    transport: LocalTransport,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    begin_with(
        monkeypatch,
        "from tenure.transports.supervisor.program import TaskTable\n"
        "TaskTable.trust = lambda self, *_: 1 / 0",
    )
    run_id, kept = new_run(), Kept()
    async with running(transport, tree("deaf", run_id, tmp_path), kept) as task:
        await kept.shows(UP)
        transport.trust("any", 0.0, margin=8)
        with pytest.raises(TransportError, match="is not known"):
            await task
        assert left_of(run_id, tmp_path) == set()
    assert "ZeroDivisionError" in caplog.text


async def test_nonsense_from_a_supervisor_is_its_end(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_with(
        monkeypatch,
        "from tenure.transports.supervisor import protocol\nprotocol.EXITED = 99",
    )
    with pytest.raises(TransportError, match="it does not make sense: a frame of kind 99"):
        await transport.run(HERE, sh("true"), Kept())


async def test_a_supervisor_that_cannot_begin(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_with(monkeypatch, "raise SystemExit(1)")
    with pytest.raises(NotStarted, match="ended before it began"):
        await transport.run(HERE, sh("true"), Kept())
    assert supervisors() == set()
    monkeypatch.undo()
    assert (await transport.run(HERE, sh("exit 3"), Kept())).code == 3


async def test_without_an_interpreter_there_is_none(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(NotStarted, match="no supervisor for local tasks could be started"):
        await transport.run(HERE, sh("true"), Kept())


async def test_what_even_a_rescue_cannot_end_is_reported(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    begin_with(monkeypatch, NO_CGROUPS)
    monkeypatch.setattr(processes, "KILL_TIMEOUT_S", 0.3)
    kept = Kept()
    async with running(transport, sh("echo $$; exec sleep 25"), kept) as task:
        [leader] = await kept.numbers(1)
        [supervisor] = supervisors()
        monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
        os.kill(supervisor, signal.SIGKILL)
        with pytest.raises(StillRunning, match=f"ps -p {leader}"):
            await task
        os.kill(leader, signal.SIGKILL)


async def test_killed_while_it_starts_many(transport: LocalTransport, tmp_path: Path) -> None:
    """Each call ends, and nothing of any task is left, whether it had been started or not."""
    run_id = new_run()
    await transport.run(HERE, sh("true"), Kept())
    [supervisor] = supervisors()
    calls = [
        asyncio.ensure_future(transport.run(HERE, tree("setsid", run_id, tmp_path), Kept()))
        for _ in range(30)
    ]
    await asyncio.sleep(0.01)
    os.kill(supervisor, signal.SIGKILL)
    ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 25)
    assert all(isinstance(end, TransportError) for end in ends)
    assert left_of(run_id, tmp_path) == set()
