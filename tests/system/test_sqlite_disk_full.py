"""A full disk under SQLite: a clear error, no torn record, and on it goes once there is space.

The limit is a real one: the kernel refuses to let this process's files grow (``RLIMIT_FSIZE``), in
a child so that nobody else is limited. Where the kernel lets us mount, a full file system too.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tenure.model.errors import StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import change_run, embedded_run

ROOM = 400_000
FULL = "no space left for {}: nothing was written; free some and try again"
LIMITED = "{}: disk I/O error; look at the disk, its quota and the limits of file sizes"
"""SQLite does not tell why else a file cannot grow."""


async def fill_up(store: SQLiteStore, run: RunSnapshot) -> tuple[RunSnapshot, str]:
    """Update until the store says it cannot; the run as last acknowledged, and what was said."""
    for number in range(1000):
        try:
            await store.update_run(change_run(run, message=f"{number} " + "x" * 20_000))
        except StoreUnavailable as error:
            return run, str(error)
        run = await store.get_run(run.run_id)
    raise AssertionError("the disk never filled up")


async def story(
    database: Path, take_space: Callable[[], None], give_space: Callable[[], None], words: str
) -> None:
    async with await SQLiteStore.open(database) as store:
        new = embedded_run("owner-a")
        await store.create_run(new)
        take_space()
        run, said = await fill_up(store, await store.get_run(new.snapshot.run_id))
        assert said == words.format(database), said
        # What was acknowledged is there, and nothing of what was refused.
        assert await store.get_run(run.run_id) == run
        give_space()
        receipt = await store.update_run(change_run(run, message="there is space again"))
        assert receipt.version == run.version + 1
        events = await store.read_events(run.run_id)
        assert {event.version for event in events} <= set(range(1, receipt.version + 1))
    connection = apsw.Connection(str(database))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


def limit_file_size(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def limited_process(database: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    await story(
        database,
        lambda: limit_file_size(ROOM),
        lambda: limit_file_size(resource.RLIM_INFINITY),
        LIMITED,
    )


@pytest.mark.slow
def test_file_size_limit(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, __file__, str(tmp_path / "runs.db")], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr


@pytest.mark.slow
async def test_full_file_system(tmp_path: Path) -> None:
    """A small file system of our own, or (without the right to mount) the size limit once more."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mounted)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        test_file_size_limit(tmp_path)
        return
    ballast = mounted / "ballast"

    def take_space() -> None:
        free = os.statvfs(mounted)
        ballast.write_bytes(b"x" * max(free.f_bavail * free.f_frsize - ROOM, 0))

    try:
        await story(mounted / "runs.db", take_space, ballast.unlink, FULL)
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


if __name__ == "__main__":
    asyncio.run(limited_process(Path(sys.argv[1])))
