"""How the end of a process is noticed and its status taken.

asyncio's own way depends on the child watcher of the running policy: a thread per process by
default on Python 3.11, and not ours to replace in a program that embeds us. A pidfd in the loop
costs no thread and touches nothing that is shared.
"""

from __future__ import annotations

import errno
import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Protocol


class Watch(Protocol):
    def reap(self) -> int | None:
        """The wait status of a process that has ended; ``None`` if somebody else took it."""
        ...

    def close(self) -> None: ...


class PidfdWatch:
    """The process stays a zombie until ``reap``: its number, and with it the number of its
    process group, cannot be given to anybody else while we may still signal it."""

    __slots__ = ("_fd", "_loop", "_pid")

    def __init__(self, loop: AbstractEventLoop, pid: int, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:  # ended, and reaped by somebody else
            self._fd = -1
            loop.call_soon(ended)
        else:
            loop.add_reader(self._fd, self._noticed, ended)

    def reap(self) -> int | None:
        return _status(self._pid)

    def close(self) -> None:
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _noticed(self, ended: Callable[[], None]) -> None:
        self.close()
        ended()


class ThreadWatch:
    """Where the system has no pidfds (macOS, old kernels): a thread that waits. It has to reap to
    know, so the number is free again a little before we stop using it."""

    def __init__(self, loop: AbstractEventLoop, pid: int, ended: Callable[[], None]) -> None:
        self._status: int | None = None
        threading.Thread(target=self._wait, args=(loop, pid, ended), daemon=True).start()

    def reap(self) -> int | None:
        return self._status

    def close(self) -> None:
        """The thread ends with the process."""

    def _wait(self, loop: AbstractEventLoop, pid: int, ended: Callable[[], None]) -> None:
        self._status = _status(pid)
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(ended)


def watch(loop: AbstractEventLoop, pid: int, ended: Callable[[], None]) -> Watch:
    """``ended`` is called once, in the loop, when the process has ended."""
    return PidfdWatch(loop, pid, ended) if pidfds_work() else ThreadWatch(loop, pid, ended)


@cache
def pidfds_work() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except AttributeError:  # not Linux
        return False
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # says nothing about pidfds
        return False  # an old kernel, or forbidden by a sandbox
    return True


def leave_behind(pid: int) -> None:
    """Take its status whenever it ends, for nobody."""
    threading.Thread(target=_status, args=(pid,), daemon=True).start()


def _status(pid: int) -> int | None:
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return None
