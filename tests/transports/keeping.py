"""Keepers of output, and facts about processes."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tenure.ports.execution import Command, Endpoint, Exit
from tenure.system import process_start
from tenure.transports.children import ChildStarter
from tenure.transports.commands import Starter
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor.client import SupervisedStarter
from tenure.transports.supervisor.processes import all_processes

HERE = Endpoint(name="here", address="local")
STARTERS: dict[str, Callable[[], Starter]] = {
    "child": ChildStarter,
    "supervised": SupervisedStarter,
}


class Kept:
    """Keeps everything; lets a test wait for what it is looking for."""

    def __init__(self) -> None:
        self.chunks: list[tuple[str, bytes]] = []
        self._news = asyncio.Condition()

    async def write(self, stream: str, data: bytes) -> None:
        async with self._news:
            self.chunks.append((stream, data))
            self._news.notify_all()

    def of(self, stream: str) -> bytes:
        return b"".join(data for name, data in self.chunks if name == stream)

    @property
    def stdout(self) -> bytes:
        return self.of("stdout")

    @property
    def stderr(self) -> bytes:
        return self.of("stderr")

    async def shows(self, text: bytes) -> None:
        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(lambda: text in self.stdout)

    async def numbers(self, count: int) -> list[int]:
        """The first ``count`` numbers it prints, one a line: usually process numbers."""
        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(lambda: self.stdout.count(b"\n") >= count)
        return [int(line) for line in self.stdout.split()[:count]]


class Blocked:
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.size = 0

    async def write(self, stream: str, data: bytes) -> None:
        self.asked.set()
        await self.go.wait()
        self.size += len(data)


class Broken:
    async def write(self, stream: str, data: bytes) -> None:
        raise ConnectionError("nobody keeps this")


def sh(script: str, *, grace: float = 5.0, **rest: object) -> Command:
    return Command(argv=("/bin/sh", "-c", script), grace=grace, **rest)  # type: ignore[arg-type]


@asynccontextmanager
async def running(
    transport: LocalTransport, command: Command, output: object
) -> AsyncIterator[asyncio.Task[Exit]]:
    task = asyncio.ensure_future(transport.run(HERE, command, output))  # type: ignore[arg-type]
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


def runs(pid: int) -> bool:
    return process_start(pid) is not None


def open_files() -> int:
    """What earlier tests forgot is let go of first: it must not vanish while we count. What is left
    is in use, and need not be looked through the next time."""
    gc.collect()
    gc.freeze()
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> list[int]:
    """Of this process, zombies included, but for servers that other suites have started in it."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [pid for pid in map(int, listed.split()) if not _is_server(pid)]


def tasks() -> set[int]:
    """All processes below this one, zombies included, but for supervisors."""
    census = all_processes()
    below = set(children())
    while True:
        more = {each.pid for each in census.values() if each.parent in below} - below
        if not more:
            return {pid for pid in below if not _supervises(pid)}
        below |= more


def _supervises(pid: int) -> bool:
    return b"tenure.transports.supervisor" in _command_line(pid)


def _is_server(pid: int) -> bool:
    program = _command_line(pid).partition(b"\0")[0]
    return any(name in program for name in (b"postgres", b"valkey", b"redis"))


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
