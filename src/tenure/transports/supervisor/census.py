"""Which processes there are, as ``/proc`` tells, and signals that reach the one that is meant."""

from __future__ import annotations

import errno
import os
import signal

TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds of the boot clock that ``start`` counts by."""
_MOST_ENVIRONMENT = 8 << 20


class Process:
    """One process at the moment it was looked at. ``start`` tells it from a later one with the
    same number."""

    __slots__ = ("alive", "group", "parent", "pid", "session", "start")

    def __init__(
        self, pid: int, parent: int, group: int, session: int, start: int, alive: bool
    ) -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.session = session
        self.start = start
        self.alive = alive
        """A zombie is not: it only waits for somebody to take note."""


def everybody() -> dict[int, Process]:
    """By number. What begins or ends meanwhile may be missing. ``OSError`` if this system has no
    descriptors left to look with: who is not seen then may live all the same."""
    found = (look_at(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {process.pid: process for process in found if process is not None}


def look_at(pid: int) -> Process | None:
    stat = read(b"/proc/%d/stat" % pid)
    # The command name may hold spaces and parentheses; fields are counted behind the last one.
    fields = stat[stat.rfind(b")") + 2 :].split(None, 20)
    if len(fields) < 20:
        return None
    # A main thread that has ended looks like a zombie while its other threads live on.
    alive = fields[0] not in b"ZX" or int(fields[17]) > 1
    parent, group, session, start = map(int, (*fields[1:4], fields[19]))
    return Process(pid, parent, group, session, start, alive)


def environment(pid: int) -> dict[bytes, bytes]:
    """What its program was started with; nothing if that is not for us, or was overwritten."""
    env: dict[bytes, bytes] = {}
    for pair in read(b"/proc/%d/environ" % pid, _MOST_ENVIRONMENT).split(b"\0"):
        name, _, value = pair.partition(b"=")
        env.setdefault(name, value)
    return env


def read(path: bytes, most: int = 4096) -> bytes:
    """The first bytes of a file under ``/proc``; nothing if it is gone or not for us."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return b""
    try:
        return os.read(fd, most)
    except OSError:
        return b""
    finally:
        os.close(fd)


def send(process: Process, number: int) -> bool:
    """A signal to that process and to no other that got its number since. One that is gone needs
    none; one that is not ours to signal (false) will be found again."""
    return _send(process, number, whole_group=False)


def send_to_group(process: Process, number: int) -> bool:
    """To everybody in its group in one go: also to what is being forked at this very moment."""
    return _send(process, number, whole_group=True)


def _send(process: Process, number: int, *, whole_group: bool) -> bool:
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return True
    try:
        now = look_at(process.pid)
        if now is None or now.start != process.start:
            return True
        if whole_group:
            os.killpg(now.group, number)
        else:
            signal.pidfd_send_signal(fd, number)
    except OSError as error:
        return error.errno != errno.EPERM
    finally:
        os.close(fd)
    return True
