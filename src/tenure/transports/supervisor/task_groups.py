"""A control group for each task, from its first instruction on, where the system allows it.

What a task starts is born in its group and stays there whatever it does to its environment, limits,
session or parents; only who may write to groups can leave on purpose, or a login that systemd gives
a session. So the group tells whose an orphan is that lost every mark and name, and one write makes
a whole tree stand still, also what is being forked at that moment.

It has to be cheap. Moving a process takes a lock that waits for every processor and holds up all
forks of the machine (6 to 12 ms for one that comes alone); being born elsewhere (``clone3``) copies
memory when Python does it. But a *thread* that moves *itself* takes no such lock, and what it then
starts is born where it is. So the supervisor, which has one thread, waits in the group of the task
that will come next, made while nobody waited, and leaves it once that is started.

Threads only move within one resource domain, hence all groups here are *threaded*, which has its
price: the kernel lists threads and no processes, ``cgroup.kill`` is refused (what is frozen is
killed one by one), and a *domain* group inside one can hold nobody, which container tools may want.

Where they are depends on what our own group, the *home*, is:

- the root, or part of a threaded domain (a supervisor in a task of another one): the groups belong
  to the domain of home, and the supervisor stays there;
- a domain: to hold threaded groups would change what home is for everybody in it. So the supervisor
  moves, once, into a group below, which becomes the head of a threaded domain of its own.

A group bears the number of its task and is removed when nobody is in it any more: none is ever used
for two tasks. Until then whatever was made inside stays, whoever made it.

Nothing here raises because groups are refused; then tasks have none, and marks, names and suspicion
have to do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Container

from tenure.transports.supervisor import cgroups
from tenure.transports.supervisor.census import read
from tenure.transports.supervisor.cgroups import remove, write
from tenure.transports.supervisor.suspicion import RELEASED

_OLDEST = (5, 5)
"""The first Linux on which a thread that moves itself does not wait for the whole machine."""
_PROBE = 0
"""The number of no task."""
_AT_A_TIME = 8
"""Groups that are removed or looked at in one go: a task that comes meanwhile waits for no more."""


class TaskGroups:
    """``home`` is the directory of the group this process is in; ``None``: there are none."""

    def __init__(self, home: str | None) -> None:
        self._home = home or ""
        self._folder = ""
        """Of all groups; empty: there are none."""
        self._resting_place = -1
        """A descriptor: who writes to it is in no group of a task."""
        self._label = b""
        self._moved = False
        self._tasks: set[int] = set()
        """Those that were not released and have a group of their own."""
        self._entered: int | None = None
        """The group this process is in: that of the next task, while nobody starts one."""
        self._shared: set[int] = set()
        """Groups that this process could not leave when their task was there: they tell nothing."""
        self._spent: deque[int] = deque()
        self._inhabited: deque[int] = deque()
        """Of released tasks that left somebody behind."""
        self._unsure = 0
        """Of how many of these he may have gone."""
        if home is not None and _threads_move_alone():
            self._begin(home)

    @property
    def possible(self) -> bool:
        return bool(self._folder)

    # Starting

    def enter(self, task: int) -> None:
        """What is started before ``leave`` is born in the group of ``task``."""
        if self._folder and (self._entered == task or self._prepare(task)):
            self._tasks.add(task)

    def leave(self) -> None:
        if not self._back() and self._entered is not None:
            self._tasks.discard(self._entered)
            self._shared.add(self._entered)

    def release(self, task: int) -> None:
        """Nobody is to end what is still in its group."""
        if task in self._tasks:
            self._tasks.discard(task)
            self._spent.append(task)

    # Telling

    def whose(self, pid: int) -> int | None:
        """The task in whose group a process is, or was when it died: one of these, or one that was
        (``RELEASED``). ``OSError``: nothing left to look with."""
        if not self._folder:
            return None
        _, _, below = read(b"/proc/%d/cgroup" % pid).partition(self._label)
        number = below.split(b"\n")[0].split(b"/")[0].split(b" ")[0]  # one removed is "7 (deleted)"
        if not number.isdigit() or int(number) in self._shared:
            return None
        return int(number) if int(number) in self._tasks else RELEASED

    def inside(self, task: int, known: Container[int]) -> list[int]:
        """Process numbers; also of groups that were made inside."""
        return cgroups.processes_in(self._group(task), known) if task in self._tasks else []

    def inhabited(self, task: int) -> bool:
        """Whether somebody is in it, also if it is not shown to us who."""
        return task in self._tasks and cgroups.inhabited(self._group(task))

    # Ending

    def freeze(self, task: int) -> None:
        if task in self._tasks:
            cgroups.freeze(self._group(task))

    def thaw(self, task: int) -> None:
        """What could not be killed is let go on."""
        if task in self._tasks:
            cgroups.thaw(self._group(task))

    # While nobody waits

    @property
    def untidy(self) -> bool:
        """Whether there is more to do than one ``tidy`` does."""
        return bool(self._spent or self._unsure)

    def look_again(self) -> None:
        """Somebody ended who may have been the last in a group."""
        self._unsure = len(self._inhabited)

    def tidy(self, next_task: int) -> None:
        """Remove some of what is empty, and wait where the task is to be born that comes next."""
        if not self._folder:
            return
        for _ in range(min(_AT_A_TIME, len(self._spent))):
            self._remove_or_keep(self._spent.popleft())
        # One at least: the last one in a group need not be a child of ours, whose end we are told.
        for _ in range(min(max(1, self._unsure), _AT_A_TIME, len(self._inhabited))):
            self._unsure = max(0, self._unsure - 1)
            self._remove_or_keep(self._inhabited.popleft())
        if self._entered is None:
            self._prepare(next_task)

    def _remove_or_keep(self, task: int) -> None:
        group = self._group(task)
        if not (_remove_empty(group) or remove(group)):
            self._inhabited.append(task)

    def close(self) -> None:
        """What is inhabited stays; whoever comes later removes it."""
        if not self._folder:
            return
        self._back()
        if self._moved:
            write(f"{self._home}/cgroup.procs", b"0")
        if self._resting_place >= 0:
            os.close(self._resting_place)
        cgroups.clear(self._folder)
        self._folder = ""

    # Beginning

    def _begin(self, home: str) -> None:
        cgroups.sweep(home)
        folder = folder_in(home, os.getpid())
        if not _made(folder):
            return
        self._folder, self._label = folder, os.fsencode(f"/{os.path.basename(folder)}/")
        if not (self._settle() and self._try_out()):
            self.close()

    def _settle(self) -> bool:
        """Be where the groups of tasks should be entered from; whether they can, is tried out."""
        place = self._home
        if read(os.fsencode(f"{place}/cgroup.type")).strip() == b"domain":
            place = self._folder
            self._moved = write(f"{place}/cgroup.procs", b"0")
        else:
            write(f"{self._folder}/cgroup.type", b"threaded")
        before = self._resting_place
        try:
            self._resting_place = os.open(f"{place}/cgroup.threads", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return False
        if before >= 0:
            os.close(before)
        return True

    def _begin_anew(self) -> bool:
        """Somebody removed the folder while nobody was in it: whoever cannot see that we live, as
        from another container that shares our home."""
        if os.path.exists(self._folder) or not _made(self._folder):
            return False
        try:
            if self._settle():
                return True
        except OSError:  # nothing left to look with
            pass
        remove(self._folder)
        return False

    def _try_out(self) -> bool:
        """There and back, before a task depends on it."""
        self.enter(_PROBE)
        entered = self._entered == _PROBE
        self.leave()
        self.release(_PROBE)
        return entered and self._entered is None

    def _prepare(self, task: int) -> bool:
        """Make its group and go in."""
        waited = self._entered
        if not self._back():
            return False
        if waited is not None:  # for one that did not come
            self._spent.append(waited)
        group = self._group(task)
        if not _made(group) and not (self._begin_anew() and _made(group)):
            return False
        if write(f"{group}/cgroup.type", b"threaded") and write(f"{group}/cgroup.threads", b"0"):
            self._entered = task
            return True
        self._spent.append(task)
        return False

    def _group(self, task: int) -> str:
        return f"{self._folder}/{task}"

    def _back(self) -> bool:
        """Out of any group of a task."""
        if self._entered is not None:
            try:
                os.write(self._resting_place, b"0")
            except OSError:
                return False
            self._entered = None
        return True


def folder_in(home: str, supervisor: int) -> str:
    """Where the groups of a supervisor's tasks are, each under its number."""
    return f"{home}/{cgroups.name_of(supervisor)}-tasks"


def _threads_move_alone() -> bool:
    numbers = os.uname().release.split(".")[:2]
    return all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) >= _OLDEST


def _made(folder: str) -> bool:
    try:
        os.mkdir(folder)
    except OSError:
        return False
    return True


def _remove_empty(group: str) -> bool:
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
