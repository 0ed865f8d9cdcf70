"""Cancelled, timed out, failing output, descendants that stay: nothing is left running."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from tenure.model.errors import StillRunning
from tenure.ports.execution import Command
from tenure.transports import children as as_children
from tenure.transports.local import LocalTransport
from tests.transports.conftest import NewTransport
from tests.transports.keeping import (
    HERE,
    Blocked,
    Broken,
    Kept,
    children,
    open_files,
    running,
    runs,
    sh,
    tasks,
)

pytestmark = pytest.mark.slow

LONG = 1000.0
"""A grace that the test's own time limit would end: whoever waits for it fails."""


class TestCancel:
    async def test_the_whole_group_ends(self, transport: LocalTransport) -> None:
        kept = Kept()
        script = "sleep 1000 & echo $!; sleep 1000 & echo $!; echo $$; wait"
        async with running(transport, sh(script, grace=LONG), kept) as task:
            family = await kept.numbers(3)
            assert all(map(runs, family))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not any(map(runs, family))

    async def test_term_comes_first_and_last_words_are_kept(
        self, transport: LocalTransport
    ) -> None:
        kept = Kept()
        # What it starts before its trap can never have inherited the trap.
        script = "sleep 1000 & trap 'echo tidied; exit 0' TERM; echo up; wait"
        async with running(transport, sh(script, grace=LONG), kept) as task:
            await kept.shows(b"up")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert kept.stdout == b"up\ntidied\n"

    async def test_who_ignores_term_is_killed_after_the_grace(
        self, transport: LocalTransport
    ) -> None:
        kept = Kept()
        script = "trap '' TERM; sleep 1000 & echo $!; echo $$; wait"
        async with running(transport, sh(script, grace=0.2), kept) as task:
            family = await kept.numbers(2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not any(map(runs, family))

    async def test_a_second_cancel_kills_at_once(self, transport: LocalTransport) -> None:
        kept = Kept()
        script = "trap 'echo deaf' TERM; echo $$; for n in $(seq 600); do sleep 0.05; done"
        async with running(transport, sh(script, grace=LONG), kept) as task:
            [leader] = await kept.numbers(1)
            task.cancel()
            await kept.shows(b"deaf")
            task.cancel()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 10)
            assert not runs(leader)

    async def test_during_the_start(self, transport: LocalTransport) -> None:
        before = tasks()
        for rounds in range(6):
            task = asyncio.ensure_future(transport.run(HERE, sh("exec sleep 1000"), Kept()))
            for _ in range(rounds):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert tasks() == before

    async def test_at_the_very_end(self, transport: LocalTransport) -> None:
        """Whenever it comes: the call ends, and the process was reaped once."""
        for rounds in range(0, 60, 5):
            task = asyncio.ensure_future(transport.run(HERE, Command(argv=("true",)), Kept()))
            for _ in range(rounds):
                await asyncio.sleep(0.0002)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or task.result().code == 0


async def test_while_waiting_for_a_turn_nothing_is_started(
    new_transport: NewTransport, temporary: Path
) -> None:
    transport, kept = new_transport(most_processes=1), Kept()
    async with (
        running(transport, sh("echo up; exec sleep 1000"), kept),
        running(transport, sh(f": > {temporary}/started"), Kept()) as second,
    ):
        await kept.shows(b"up")
        second.cancel()
        await asyncio.wait({second})
    assert not (temporary / "started").exists()


@pytest.mark.slow
async def test_two_hundred_cancelled_at_once(transport: LocalTransport) -> None:
    kept = [Kept() for _ in range(200)]
    tasks = [
        asyncio.ensure_future(
            transport.run(HERE, sh("sleep 1000 & echo $!; wait", grace=LONG), each)
        )
        for each in kept
    ]
    family = [pid for each in kept for pid in await each.numbers(1)]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert not any(map(runs, family))


async def test_a_time_out_ends_it_too(transport: LocalTransport) -> None:
    kept = Kept()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await transport.run(HERE, sh("echo $$; exec sleep 1000", grace=LONG), kept)
    [leader] = await kept.numbers(1)
    assert not runs(leader)


async def test_output_nobody_takes_does_not_hold_up_the_end(transport: LocalTransport) -> None:
    blocked = Blocked()
    script = "head -c 1000000 /dev/zero; exec sleep 1000"
    async with running(transport, sh(script, grace=0.2), blocked) as task:
        await asyncio.wait_for(blocked.asked.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_failing_output_ends_the_process_and_is_raised(
    transport: LocalTransport, tmp_path: Path
) -> None:
    script = f"sleep 1000 & trap ': > {tmp_path}/tidied; exit' TERM; echo up; wait"
    with pytest.raises(ConnectionError, match="nobody keeps this"):
        await transport.run(HERE, sh(script, grace=LONG), Broken())
    assert (tmp_path / "tidied").exists()


async def test_output_that_fails_meanwhile_does_not_cost_the_grace(
    transport: LocalTransport, tmp_path: Path
) -> None:
    class FailsAtTheEnd(Kept):
        async def write(self, stream: str, data: bytes) -> None:
            if b"tidying" in data:
                raise ConnectionError("nobody keeps this")
            await super().write(stream, data)

    kept = FailsAtTheEnd()
    tidy = f"echo tidying; sleep 0.2; : > {tmp_path}/tidied; exit"
    script = f"sleep 1000 & trap '{tidy}' TERM; echo up; wait"
    async with running(transport, sh(script, grace=LONG), kept) as task:
        await kept.shows(b"up")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (tmp_path / "tidied").exists()


async def test_a_call_that_is_torn_down_kills(transport: LocalTransport) -> None:
    """As when a program ends with its loop stopped: nothing can be waited for any more."""
    await transport.run(HERE, sh("true"), Kept())
    before, files = tasks(), open_files()
    call = transport.run(HERE, sh("trap '' TERM; exec sleep 1000", grace=LONG), Kept())
    call.send(None)
    while tasks() == before:
        await asyncio.sleep(0.005)
    call.close()
    assert open_files() <= files
    while tasks() != before:  # nobody tells us when
        await asyncio.sleep(0.005)


async def test_a_descendant_that_prints_nowhere_gets_its_grace(
    transport: LocalTransport, tmp_path: Path
) -> None:
    """The shell dies of TERM at once; what it started is still tidying up, in silence."""
    silent = tmp_path / "silent"
    silent.write_text(
        f"trap 'sleep 0.3; : > {tmp_path}/tidied; exit' TERM\n"
        "echo up >&3; exec 3>&-; for n in $(seq 600); do sleep 0.05; done"
    )
    script = f"exec 3>&1; sh {silent} > {tmp_path}/log 2>&1 & exec 3>&-; wait"
    kept, command = Kept(), sh(script, grace=LONG)
    async with running(transport, command, kept) as task:
        await kept.shows(b"up")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (tmp_path / "tidied").exists()


@pytest.mark.parametrize("parent", ["child"], indirect=True)
@pytest.mark.parametrize("impatient", [(), (0.15, 0.2, 0.25)])
async def test_what_cannot_be_killed_is_reported(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch, impatient: tuple[float, ...]
) -> None:
    """As with another user's process, which we may see and not signal. However often it is
    cancelled: the answer stays honest."""

    def refuse(group: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(as_children, "_KILL_TIMEOUT_S", 0.4)
    kept = Kept()
    async with running(transport, sh("echo $$; exec sleep 1000", grace=0.05), kept) as task:
        [leader] = await kept.numbers(1)
        monkeypatch.setattr(os, "killpg", refuse)
        task.cancel()
        for moment in impatient:
            asyncio.get_running_loop().call_later(moment, task.cancel)
        with pytest.raises(StillRunning, match=f"process {leader}"):
            await task
        monkeypatch.undo()
        assert runs(leader)
        os.killpg(leader, signal.SIGKILL)
        while leader in children():  # a thread takes its status; nobody tells us when
            await asyncio.sleep(0.005)


# -- descendants that keep the output open --------------------------------------------------------


async def test_what_a_descendant_prints_within_the_grace_is_kept(
    transport: LocalTransport,
) -> None:
    kept = Kept()
    end = await transport.run(HERE, sh("(sleep 0.2; echo late) & exit 3", grace=LONG), kept)
    assert (end.code, kept.stdout) == (3, b"late\n")


@pytest.mark.parametrize(
    "talk", ["exec sleep 1000", "for n in $(seq 3000); do echo more >&2; sleep 0.01; done"]
)
async def test_a_descendant_that_holds_the_output_is_ended_after_the_grace(
    transport: LocalTransport, talk: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    with caplog.at_level(logging.WARNING):
        end = await transport.run(HERE, sh(f"({talk}) & echo $!; exit 4", grace=0.2), kept)
    [pid] = await kept.numbers(1)
    assert end.code == 4
    assert not runs(pid)
    assert "kept its output open" in caplog.text


async def test_who_left_the_group_cannot_hold_up_the_call(transport: LocalTransport) -> None:
    kept = Kept()
    end = await transport.run(HERE, sh("setsid sleep 1000 & echo $!; exit 0", grace=0.2), kept)
    [pid] = await kept.numbers(1)
    assert (end.code, runs(pid)) == (0, True)
    os.kill(pid, signal.SIGKILL)


async def test_a_daemon_with_output_of_its_own_lives_on(transport: LocalTransport) -> None:
    kept = Kept()
    await transport.run(HERE, sh("sleep 1000 >/dev/null 2>&1 & echo $!", grace=LONG), kept)
    [pid] = await kept.numbers(1)
    assert runs(pid)
    os.kill(pid, signal.SIGKILL)


async def test_slow_keepers_lose_nothing(
    transport: LocalTransport, caplog: pytest.LogCaptureFixture
) -> None:
    """The process is long gone and its grace over when its output is taken at last."""
    blocked, size = Blocked(), 300_000
    command = sh(f"head -c {size} /dev/zero", grace=0.05)
    async with running(transport, command, blocked) as task:
        await asyncio.wait_for(blocked.asked.wait(), 20)
        await transport.run(HERE, sh("sleep 0.3"), Kept())
        blocked.go.set()
        assert (await task).code == 0
    assert blocked.size == size
    assert caplog.text == ""
