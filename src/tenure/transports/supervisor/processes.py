"""The processes of this machine as ``/proc`` tells, signals that reach the one that is meant, and
the order of signals that ends a task: TERM, grace, KILL (``Termination``)."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from math import inf

# Looking at processes.

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
        """A zombie is not: it only waits to be reaped."""


def all_processes() -> dict[int, Process]:
    """By number. What begins or ends meanwhile may be missing. ``OSError`` if this system has no
    descriptors left to look with: what is not seen then may live all the same."""
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
    """To all in its group in one go: also to what is being forked at this very moment."""
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


# How a task ends before its time: TERM, grace, STOP, KILL, and looking until nothing is there.
# Pure: what was found goes in, what to signal comes out. STOP comes before KILL because a tree that
# forks faster than it is counted has to stand still first: a killed process frees its place for
# another, and its children change parents under our eyes; a stopped one does neither.

KILL_TIMEOUT_S = 5.0
"""Seconds the system has to carry out a KILL. A process it cannot end (stuck in a driver, another
user's) is reported rather than waited for."""
TO_CLEAR_UP_S = 0.5
"""Seconds after the grace in which it may still turn out whose a process is."""
_FIRST_LOOK_S, _LAST_LOOK_S = 0.002, 0.1
_MOST_STANDSTILLS = 20
_MOST_DOUBTS = 20
"""Looks without a pause for a moment of certainty."""

Orders = list[tuple[Process, int]]


class Termination:
    """``only_group``: of a task that ended by itself, only what stayed in its process group."""

    def __init__(self, now: float, grace: float, *, only_group: bool = False) -> None:
        self.only_group = only_group
        self.kill_at = now + grace
        self.look_at = now
        self.signalled = 0
        """How many processes there were to end."""
        self.killing = False
        self._warned = only_group
        self._standing: set[tuple[int, int]] = set()
        self._standstills = 0
        self._doubts = 0
        self._pause = _FIRST_LOOK_S
        self._give_up_at = inf

    def hasten(self, now: float, grace: float) -> None:
        """The shortest grace counts."""
        self.kill_at = min(self.kill_at, now + grace)
        self.look_at = now

    def widen(self) -> None:
        """The whole tree after all."""
        self.only_group = False

    def step(self, now: float, members: Sequence[Process]) -> Orders:
        """What to send to the living among ``members``; ``look_at`` says when to come back."""
        living = [process for process in members if process.alive]
        if not self._warned:
            self._warned = True
            self.signalled = len(living)
            self.look_at = now + _FIRST_LOOK_S
            if now < self.kill_at:
                # A stopped process hears TERM only when it goes on.
                return [(each, number) for each in living for number in (_TERM, _CONT)]
        if now < self.kill_at:
            self._wait(now)
            return []
        if not self.killing:
            fresh = [each for each in living if (each.pid, each.start) not in self._standing]
            if fresh and self._standstills < _MOST_STANDSTILLS:
                self._standstills += 1
                self._standing.update((each.pid, each.start) for each in fresh)
                self.look_at = now
                return [(each, _STOP) for each in fresh]
            self.killing = True
            self.signalled = max(self.signalled, len(living))
            self._pause = _FIRST_LOOK_S
            self._give_up_at = now + KILL_TIMEOUT_S
        self._wait(now)
        return [(each, _KILL) for each in living]

    def over(
        self, now: float, members: Sequence[Process], *, hidden: bool, doubtful: bool = False
    ) -> bool | None:
        """True: all gone. False: what is left cannot be ended. ``None``: not known yet.

        Zombies among ``members`` died while we looked, and may have left something behind that we
        missed: then it takes another look. ``hidden``: something is there that we cannot see.
        ``doubtful``: something is there that may be another's.
        """
        if not members and not hidden:
            if not doubtful:
                return True
            return False if now >= self.kill_at + TO_CLEAR_UP_S else None
        if not any(process.alive for process in members) and self._doubts < _MOST_DOUBTS:
            self._doubts += 1
            self.look_at = now
        return False if now >= self._give_up_at else None

    def _wait(self, now: float) -> None:
        pause = self._pause
        self.look_at = now + (pause if now >= self.kill_at else min(pause, self.kill_at - now))
        self._pause = min(2 * self._pause, _LAST_LOOK_S)


_TERM, _CONT, _STOP, _KILL = signal.SIGTERM, signal.SIGCONT, signal.SIGSTOP, signal.SIGKILL
