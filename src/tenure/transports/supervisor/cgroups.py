"""Enclosures for trees that are being killed, where the system lets us make control groups
(cgroup v2, our own group writable).

A tree that forks while it is killed is moved, process by process, into a group that is frozen:
what is forked from then on is born inside and stands still. Then one write kills everything in it
at one moment, whoever's it is.

A group per task from its birth would do more: it would tell whose an orphan is that lost every mark
and name, which ``suspicion`` can only guess. It costs more than a start may: a move waits for
milliseconds and holds up every fork on the machine, a birth inside copies this process's memory
unless the C library helps. docs/architecture.md has the figures.

Nothing here raises: without it, signals do the work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tenure.transports.supervisor.census import look_at, read

_PREFIX = "tenure-"


class Enclosures:
    """``home`` is the directory of the group this process is in; ``None``: there are none."""

    def __init__(self, home: str | None) -> None:
        self._home = home
        self._ours: str | None = None
        self._of_task: dict[int, str] = {}

    def enclose(self, task: int, pids: Iterable[int]) -> None:
        group = self._of_task.get(task) or self._make(task)
        if group is not None:
            for pid in pids:
                _write(f"{group}/cgroup.procs", b"%d" % pid)

    def inside(self, task: int) -> list[int]:
        """Process numbers; also of groups that were made inside."""
        found: list[int] = []
        for folder, _, _ in os.walk(self._of_task.get(task, "")):
            found += map(int, read(os.fsencode(f"{folder}/cgroup.procs"), 1 << 20).split())
        return found

    def kill(self, task: int) -> None:
        group = self._of_task.get(task)
        if group is not None:
            _write(f"{group}/cgroup.kill", b"1")

    def open(self, task: int) -> None:
        """It is over: the group goes, and what could not be killed is let go on."""
        group = self._of_task.pop(task, None)
        if group is not None:
            _write(f"{group}/cgroup.freeze", b"0")
            _remove(group)

    def close(self) -> None:
        if self._ours is not None:
            _remove(self._ours)
            self._ours = None

    def _make(self, task: int) -> str | None:
        if self._home is None:
            return None
        if self._ours is None:
            _sweep(self._home)
            me = look_at(os.getpid())
            self._ours = f"{self._home}/{_PREFIX}{os.getpid()}-{me.start if me else 0}"
        group = f"{self._ours}/{task}"
        try:
            os.makedirs(group)
        except OSError:
            self._home = None  # not allowed: not tried again
            return None
        _write(f"{group}/cgroup.freeze", b"1")
        self._of_task[task] = group
        return group


def own_group() -> str | None:
    """The directory of the control group this process is in."""
    lines = read(b"/proc/self/cgroup").split(b"\n")
    path = next((line[3:] for line in lines if line.startswith(b"0::")), b"..")
    if b".." in path:
        return None
    for line in read(b"/proc/self/mountinfo", 1 << 20).split(b"\n"):
        mount, _, kind = line.partition(b" - ")
        if kind.startswith(b"cgroup2 "):
            root, point = mount.split()[3:5]
            root = root.rstrip(b"/")
            if path == root or path.startswith(root + b"/"):
                return os.fsdecode(point + path[len(root) :]).rstrip("/")
    return None


def _sweep(home: str) -> None:
    """Groups of supervisors that were killed before they could remove them."""
    try:
        names = [name for name in os.listdir(home) if name.startswith(_PREFIX)]
    except OSError:
        return
    for name in names:
        pid, _, start = name.removeprefix(_PREFIX).partition("-")
        if pid.isdecimal() and start.isdecimal():
            maker = look_at(int(pid))
            if maker is None or maker.start != int(start):
                _remove(f"{home}/{name}")


def _remove(group: str) -> None:
    """From the inside out; what is not empty stays."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            continue


def _write(path: str, data: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, data)
    except OSError:
        return
    finally:
        os.close(fd)
