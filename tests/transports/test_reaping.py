"""The end of a process is noticed once, and its status taken once."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess

import pytest

from tenure.transports import reaping
from tests.transports.keeping import open_files

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("watching")
async def test_the_end_is_told_once() -> None:
    loop, ended, told = asyncio.get_running_loop(), asyncio.Event(), []

    def tell() -> None:
        told.append(True)
        ended.set()

    files = open_files()
    process = subprocess.Popen(["sh", "-c", "exit 3"])
    watch = reaping.watch(loop, process.pid, tell)
    await asyncio.wait_for(ended.wait(), 20)
    for _ in range(5):
        await asyncio.sleep(0)
    assert told == [True]
    assert open_files() <= files
    status = watch.reap()
    assert status is not None
    assert os.waitstatus_to_exitcode(status) == 3
    process.returncode = 3
    watch.close()


async def test_a_closed_watch_tells_nothing() -> None:
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(["true"])
    watch = reaping.PidfdWatch(loop, process.pid, lambda: pytest.fail("told"))
    watch.close()
    watch.close()
    process.wait()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("error", "works"),
    [
        (AttributeError("no such function"), False),
        (OSError(errno.ENOSYS, "not implemented"), False),
        (PermissionError(errno.EPERM, "a sandbox forbids it"), False),
    ],
)
def test_where_there_are_no_pidfds_a_thread_waits(
    monkeypatch: pytest.MonkeyPatch, error: Exception, works: bool
) -> None:
    def refuse(pid: int) -> int:
        raise error

    monkeypatch.setattr(os, "pidfd_open", refuse)
    reaping.pidfds_work.cache_clear()
    assert reaping.pidfds_work() is works
    monkeypatch.undo()
    reaping.pidfds_work.cache_clear()
    assert reaping.pidfds_work()


def test_too_many_open_files_say_nothing_about_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(pid: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    reaping.pidfds_work.cache_clear()
    with pytest.raises(OSError, match="too many"):
        reaping.pidfds_work()
    monkeypatch.undo()
    assert reaping.pidfds_work()
