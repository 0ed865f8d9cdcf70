"""Control groups (cgroup v2): one for each task, and enclosures for what has to be killed outside.

What a task starts is born in its group and stays there whatever it does to its environment, limits,
session or parents; only a process that may write to groups can leave on purpose, or a login that
systemd gives a session. So the group tells whose an orphan is that lost every mark and name, and
one write makes a whole tree stand still, also what is being forked at that moment.

It has to be cheap. Moving a process takes a lock that waits for every processor and holds up all
forks of the machine (6 to 12 ms for one that comes alone); being born elsewhere (``clone3``) copies
memory when Python does it. But a *thread* that moves *itself* takes no such lock, and what it then
starts is born where it is. So the supervisor, which has one thread, waits in the group of the task
that will come next, made ahead, and leaves it once that is started.

Threads only move within one resource domain, hence all groups of tasks are *threaded*, which has
its price: the kernel lists threads and no processes, ``cgroup.kill`` is refused (what is frozen is
killed one by one), and a *domain* group inside one can hold no process, which container tools may
want.

Groups are folders in the supervisor's own group, its *home*. Their names hold its number and its
start, so that a later supervisor sees which are abandoned. Where they are depends on what home is:

- the root, or part of a threaded domain (a supervisor in a task of another one): the groups belong
  to the domain of home, and the supervisor stays there;
- a domain: to hold threaded groups would change what home is for every process in it. So the
  supervisor moves, once, into a group below, which becomes the head of a threaded domain.

A group bears the number of its task and is removed when it is empty: none is ever used for two
tasks. Until then whatever was made inside stays.

Nothing here raises because groups are refused; then tasks have none, and marks and names have to
do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Container, Sequence

from tenure.transports.supervisor.processes import look_at, read

# Groups as files.

_PREFIX = "tenure-"


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


def name_of(supervisor: int) -> str:
    process = look_at(supervisor)
    return f"{_PREFIX}{supervisor}-{process.start if process else 0}"


def sweep(home: str) -> None:
    """Remove the groups of supervisors that were killed before they could."""
    for name in _folders_in(home):
        maker = _maker(name)
        if maker is not None and not _lives(maker):
            clear(f"{home}/{name}")


def clear(folder: str) -> None:
    """Remove the groups of one supervisor, each as ``remove`` does, and what they were in."""
    for name in _folders_in(folder):
        remove(f"{folder}/{name}")
    remove(folder)


def remove(group: str) -> bool:
    """A group and what was made inside, from the inside out. Whether nothing is there any more.

    All of it stays while a process is anywhere in it: an empty group may be one it made and means
    to use. So do those of a supervisor that lives, which are empty between two tasks.
    """
    try:
        inside = [folder for folder, _, _ in os.walk(group, topdown=False)]
        makers = (_maker(os.path.basename(folder)) for folder in inside if folder != group)
        if inhabited(group) or any(maker is not None and _lives(maker) for maker in makers):
            return False
    except OSError:  # nothing left to look with
        return False
    for folder in inside:
        try:
            os.rmdir(folder)
        except OSError:
            continue
    return not os.path.exists(group)


def _folders_in(folder: str) -> list[str]:
    return next(os.walk(folder), ("", [], []))[1]


def _maker(name: str) -> tuple[int, int] | None:
    """Number and start of the supervisor that called a folder so, if one did."""
    pid, _, start = name.removeprefix(_PREFIX).partition("-")
    start = start.partition("-")[0]
    if name.startswith(_PREFIX) and pid.isdecimal() and start.isdecimal():
        return int(pid), int(start)
    return None


def _lives(maker: tuple[int, int]) -> bool:
    pid, start = maker
    process = look_at(pid)
    return process is not None and process.start == start


def write(path: str, data: bytes) -> bool:
    """Whether the system took it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(fd, data) > 0
    except OSError:
        return False
    finally:
        os.close(fd)


def freeze(group: str) -> None:
    """What is in it, or is born in it from now on, stands still; a KILL still reaches it."""
    write(f"{group}/cgroup.freeze", b"1")


def thaw(group: str) -> None:
    write(f"{group}/cgroup.freeze", b"0")


def inhabited(group: str) -> bool:
    """Whether a process is in it, or in a group that was made inside."""
    return b"populated 1" in read(os.fsencode(f"{group}/cgroup.events"))


def processes_in(group: str, known: Container[int]) -> list[int]:
    """Of a threaded group, whose processes are not listed: threads that are no ``known`` process
    are asked to which one they belong."""
    threads = numbers_in(group, "cgroup.threads")
    return list({each if each in known else _process_of(each) for each in threads})


def _process_of(thread: int) -> int:
    """Zero if it is gone."""
    _, _, said = read(b"/proc/%d/status" % thread).partition(b"\nTgid:")
    return int(said.split(None, 1)[0]) if said else 0


def numbers_in(group: str, name: str) -> list[int]:
    """Of a list of processes or threads, also of groups that were made inside."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        found += map(int, _all_of(f"{folder}/{name}").split())
    return found


def _all_of(path: str) -> bytes:
    """The kernel hands out long lists a page at a time. Nothing, if it is gone or not for us."""
    listed = b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return listed
    try:
        while more := os.read(fd, 1 << 16):
            listed += more
    except OSError:
        return b""
    finally:
        os.close(fd)
    return listed


# A group for each task.

_OLDEST = (5, 5)
"""The first Linux on which a thread that moves itself does not wait for the whole machine."""
RELEASED = 0
"""Stands for a task that is not known any more."""
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
        """A descriptor: a thread that writes to it is in no group of a task."""
        self._label = b""
        self._moved = False
        self._tasks: set[int] = set()
        """Those that were not released and have a group of their own."""
        self._entered: int | None = None
        """The group this process is in: that of the next task, while none is started."""
        self._shared: set[int] = set()
        """Groups that this process could not leave when their task was there: they tell nothing."""
        self._spent: deque[int] = deque()
        self._inhabited: deque[int] = deque()
        """Of released tasks that left a process behind."""
        self._unsure = 0
        """Of how many of these he may have gone."""
        if home is not None and _threads_move_alone():
            self._begin(home)

    @property
    def possible(self) -> bool:
        return bool(self._folder)

    # Starting.

    def enter(self, task: int) -> None:
        """What is started before ``leave`` is born in the group of ``task``."""
        if self._folder and (self._entered == task or self._prepare(task)):
            self._tasks.add(task)

    def leave(self) -> None:
        if not self._back() and self._entered is not None:
            self._tasks.discard(self._entered)
            self._shared.add(self._entered)

    def release(self, task: int) -> None:
        """What is still in its group is not to be ended."""
        if task in self._tasks:
            self._tasks.discard(task)
            self._spent.append(task)

    # Telling.

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
        return processes_in(self._group(task), known) if task in self._tasks else []

    def inhabited(self, task: int) -> bool:
        """Whether a process is in it, also one that is not shown to us."""
        return task in self._tasks and inhabited(self._group(task))

    # Ending.

    def freeze(self, task: int) -> None:
        if task in self._tasks:
            freeze(self._group(task))

    def thaw(self, task: int) -> None:
        """What could not be killed is let go on."""
        if task in self._tasks:
            thaw(self._group(task))

    # Between two tasks.

    @property
    def untidy(self) -> bool:
        """Whether there is more to do than one ``tidy`` does."""
        return bool(self._spent or self._unsure)

    def look_again(self) -> None:
        """A process ended that may have been the last in a group."""
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
        """What is inhabited stays; a later supervisor removes it."""
        if not self._folder:
            return
        self._back()
        if self._moved:
            write(f"{self._home}/cgroup.procs", b"0")
        if self._resting_place >= 0:
            os.close(self._resting_place)
        clear(self._folder)
        self._folder = ""

    # Beginning.

    def _begin(self, home: str) -> None:
        sweep(home)
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
        """The folder was removed while it was empty: by a supervisor that cannot see that we live,
        as from another container that shares our home."""
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
    return f"{home}/{name_of(supervisor)}-tasks"


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


# Enclosures: for what has to be killed and does not stand still in the group of its task.
# That is everything where tasks have no groups; else what left its group, what stayed in the
# process group of a task that ended by itself, and what is not ours to signal. It is moved, process
# by process, into a group that is frozen: what is forked from then on is born inside and stands
# still. Then one write kills everything in it at one moment, also what belongs to other users. A
# move may hold up all forks of the machine for some milliseconds, so it is kept for what needs it.


class Enclosures:
    """``home`` is the directory of the group this process is in; ``None``: there are none."""

    def __init__(self, home: str | None) -> None:
        self._home = home
        self._ours: str | None = None
        self._of_task: dict[int, str] = {}

    def enclose(self, task: int, pids: Sequence[int]) -> None:
        group = self._of_task.get(task) or self._make(task)
        if group is not None:
            for pid in pids:
                write(f"{group}/cgroup.procs", b"%d" % pid)

    def inside(self, task: int) -> list[int]:
        """Process numbers; also of groups that were made inside."""
        return numbers_in(self._of_task[task], "cgroup.procs") if task in self._of_task else []

    def kill(self, task: int) -> None:
        group = self._of_task.get(task)
        if group is not None:
            write(f"{group}/cgroup.kill", b"1")

    def open(self, task: int) -> None:
        """It is over: the group goes, and what could not be killed is let go on."""
        group = self._of_task.pop(task, None)
        if group is not None:
            thaw(group)
            remove(group)

    def close(self) -> None:
        if self._ours is not None:
            clear(self._ours)
            self._ours = None

    def _make(self, task: int) -> str | None:
        if self._home is None:
            return None
        if self._ours is None:
            sweep(self._home)
            self._ours = f"{self._home}/{name_of(os.getpid())}"
        group = f"{self._ours}/{task}"
        try:
            os.makedirs(group)
        except OSError:
            self._home = None  # not allowed: not tried again
            return None
        freeze(group)
        self._of_task[task] = group
        return group
