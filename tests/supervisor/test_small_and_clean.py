"""The supervisor is small, holds nothing of what is over, and does not touch what passes by."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tenure.model.errors import NotStarted
from tenure.ports.execution import Command
from tenure.transports.local import LocalTransport
from tenure.transports.streams import Inflow
from tests.supervisor.supervising import supervisors
from tests.transports.keeping import HERE, Kept, running, runs, sh, tasks

pytestmark = pytest.mark.slow


def resident(pid: int) -> int:
    """In kibibytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def opened_by(pid: int) -> set[str]:
    return set(os.listdir(f"/proc/{pid}/fd"))


async def test_under_fifteen_megabytes_and_nothing_piles_up(transport: LocalTransport) -> None:
    big = {"BIG": "x" * 100_000}
    commands = [sh("exit 0", env=big if number % 10 == 0 else {}) for number in range(300)]
    await transport.run(HERE, commands[0], Kept())
    [supervisor] = supervisors()
    files = opened_by(supervisor)
    threads = set(threading.enumerate())
    for start in range(0, 300, 50):
        batch = commands[start : start + 50]
        await asyncio.gather(*(transport.run(HERE, each, Kept()) for each in batch))
    assert tasks() == set(), "no zombies either"
    async with asyncio.timeout(20):
        while not opened_by(supervisor) <= files:  # it makes the next group, and lets go of others
            await asyncio.sleep(0.02)
    assert resident(supervisor) < 15 * 1024
    assert os.listdir(f"/proc/{supervisor}/task") == [str(supervisor)], "one thread"
    assert set(threading.enumerate()) <= threads


def test_it_imports_nothing_heavy() -> None:
    source = str(Path(sys.modules["tenure"].__path__[0]).parent)
    code = (
        "import sys; sys.path.append(sys.argv[1]); import tenure.transports.supervisor.program; "
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, source], capture_output=True, text=True, check=True
    )
    heavy = {"msgspec", "asyncio", "typing", "re", "logging", "subprocess", "threading"}
    assert heavy & set(done.stdout.split()) == set()


async def test_a_task_inherits_nothing_of_it(transport: LocalTransport) -> None:
    kept = Kept()
    script = "ls /proc/self/fd; grep -E '^Sig(Blk|Ign)' /proc/self/status >&2"
    await transport.run(HERE, sh(script), kept)
    assert kept.stdout.split() == [b"0", b"1", b"2", b"3"], "the last one is of ls itself"
    _, blocked, _, ignored = kept.stderr.split()
    of_programs = (1 << 31) - 1  # beyond are those the C library keeps to itself
    assert int(blocked, 16) == 0
    assert int(ignored, 16) & of_programs == 0


async def test_signals_this_program_ignores_stay_ignored(transport: LocalTransport) -> None:
    """As ``nohup`` wants it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    kept = Kept()
    try:
        await transport.run(HERE, sh("kill -HUP $$; echo on"), kept)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert kept.stdout == b"on\n"


async def test_a_program_that_ignores_its_children_has_exit_codes_all_the_same(
    transport: LocalTransport,
) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert (await transport.run(HERE, sh("exit 3"), Kept())).code == 3
        await transport.close()
    finally:
        signal.signal(signal.SIGCHLD, before)


async def test_where_this_program_stands_its_tasks_stand(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    await transport.run(HERE, sh("true"), Kept())
    monkeypatch.chdir(tmp_path)
    for cwd, expected in ((None, tmp_path), ("sub", tmp_path / "sub")):
        kept = Kept()
        await transport.run(HERE, sh("pwd -P", cwd=cwd), kept)
        assert kept.stdout.decode().strip() == str(expected.resolve())


async def test_programs_are_looked_for_on_the_tasks_own_path(
    transport: LocalTransport, tmp_path: Path
) -> None:
    for folder, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "greet"
        program.write_text(f"#!/bin/sh\necho {folder}\n")
        program.chmod(mode)
    kept, path = Kept(), f"{tmp_path}/no:{tmp_path}/first:{tmp_path}/second:{os.environ['PATH']}"
    command = Command(argv=("greet",), env={"PATH": path})
    assert (await transport.run(HERE, command, kept)).code == 0
    assert kept.stdout == b"second\n"


async def test_bytes_no_text_holds_and_a_line_of_a_hundred_megabytes(
    transport: LocalTransport, tmp_path: Path
) -> None:
    odd = b"\xff\xfe\0\x1b[31m<b>&amp;\r" + bytes(range(256)) * 40
    line = tmp_path / "line"
    with line.open("wb") as file:
        for _ in range(100 * 1024 * 1024 // len(odd) + 1):
            file.write(odd.replace(b"\n", b" "))

    class Compared:
        at = 0
        same = True

        async def write(self, stream: str, data: bytes) -> None:
            source.seek(self.at)
            self.same = self.same and source.read(len(data)) == data
            self.at += len(data)

    compared = Compared()
    with line.open("rb") as source:
        end = await transport.run(HERE, Command(argv=("cat", str(line))), compared)
    assert end.code == 0
    assert compared.same
    assert compared.at == line.stat().st_size > 100 * 1024 * 1024


@pytest.mark.parametrize("how", ["", "setsid"])
async def test_daemons_of_finished_tasks_outlive_it(transport: LocalTransport, how: str) -> None:
    kept = Kept()
    await transport.run(HERE, sh(f"{how} sleep 25 >/dev/null 2>&1 & echo $!"), kept)
    [daemon] = await kept.numbers(1)
    async with running(transport, sh("echo $$; exec sleep 25"), kept) as task:
        task.cancel()
        await asyncio.wait({task})
    assert runs(daemon), "the end of another task does not mean it"
    await transport.close()
    assert runs(daemon)
    os.kill(daemon, signal.SIGKILL)


def test_a_fork_of_the_runner_does_not_keep_its_tasks_alive(tmp_path: Path) -> None:
    """It holds the connection open; that its runner is gone, the supervisor sees all the same."""
    program = """
import asyncio, os, sys, time
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor.client import SupervisedStarter
from tests.transports.keeping import HERE, Kept, sh

async def main():
    transport, kept = LocalTransport(SupervisedStarter()), Kept()
    task = asyncio.ensure_future(transport.run(HERE, sh("echo $$; exec sleep 25", grace=1), kept))
    [leader] = await kept.numbers(1)
    if os.fork() == 0:
        os.close(1)
        time.sleep(25)
        os._exit(0)
    print(leader, flush=True)
    os._exit(0)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=30
    )
    leader = int(done.stdout)
    for _ in range(500):
        if not runs(leader):
            return
        threading.Event().wait(0.02)
    pytest.fail("the task lives on")


def test_one_transport_serves_one_loop_after_another(temporary: Path) -> None:
    program = """
import asyncio
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor.client import SupervisedStarter
from tests.transports.keeping import HERE, Kept, sh

transport = LocalTransport(SupervisedStarter())
codes = [asyncio.run(transport.run(HERE, sh(f"exit {code}"), Kept())).code for code in (3, 4)]
asyncio.run(transport.close())
print(codes)
"""
    env = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env=env,
        timeout=30,
    )
    assert (done.stdout, done.stderr) == ("[3, 4]\n", "")


async def test_more_orders_at_once_than_the_connection_holds(transport: LocalTransport) -> None:
    """Each is larger than the connection's buffer; all arrive, with their own descriptors."""
    env = {f"V{number}": "x" * 100_000 for number in range(5)}
    kept = [Kept() for _ in range(20)]
    commands = [sh(f"cat; echo {number}", env=env, stdin=b"in ") for number in range(20)]
    await asyncio.gather(*map(transport.run, [HERE] * 20, commands, kept))
    assert [each.stdout for each in kept] == [b"in %d\n" % number for number in range(20)]


async def test_a_task_nobody_can_read_is_not_left_running(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(inflow: Inflow) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await transport.run(HERE, sh("true"), Kept())
    monkeypatch.setattr(Inflow, "begin", none_left)
    with pytest.raises(NotStarted, match="ended at once, it cannot be read"):
        await transport.run(HERE, sh("exec sleep 25"), Kept())
    monkeypatch.undo()
    async with asyncio.timeout(20):
        while tasks():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("grace", [-1.0, float("nan"), 0.0])
async def test_a_grace_nobody_could_wait_is_none(transport: LocalTransport, grace: float) -> None:
    kept = Kept()
    async with running(transport, sh("trap '' TERM; echo up; sleep 25", grace=grace), kept) as task:
        await kept.shows(b"up")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
