"""Which processes belong to which task: marks, names, parents, sessions, and which tasks can have
started an orphan that has none of them."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Collection, Iterable, Mapping
from signal import SIGCONT, SIGKILL, SIGSTOP

from tenure.transports.supervisor import processes
from tenure.transports.supervisor.cgroups import RELEASED, TaskGroups
from tenure.transports.supervisor.processes import Process, environment, read
from tenure.transports.supervisor.protocol import Spawn

# Names: the task and the run that an environment names, for what lost the marks but not these.
# They are asked of children of this supervisor only: a run that was taken over is executed again
# under the same names, perhaps on this machine, by a supervisor of its own. And they come after the
# marks, which are not written down for every process to read.

_TASK, _RUN = b"TENURE_TASK_ID", b"TENURE_RUN_ID"


class Names:
    """Empty where nothing is said. A task is one attempt of one step on one host; its commands
    follow each other."""

    __slots__ = ("run", "task")

    def __init__(self, task: bytes, run: bytes) -> None:
        self.task = task
        self.run = run


def names_in(env: Mapping[bytes, bytes]) -> Names:
    return Names(env.get(_TASK, b""), env.get(_RUN, b""))


def names_of(pid: int) -> Names:
    return names_in(environment(pid))


# Marks that everything a task starts inherits.
# The first is a resource limit: the soft limit of file locks, which Linux has not enforced since
# 2004 and still hands down from process to process. Unlike a variable it survives an emptied
# environment, an overwritten title and a change of user, and every process may read it. The second
# is the variable TENURE_OUTPUT, whose value is a task's own: for where a limit cannot be set, or
# was changed.

_LOCKS = 10  # RLIMIT_LOCKS, for which Python has no name
_LINE = b"Max file locks"
_VARIABLE = b"TENURE_OUTPUT"

TOKEN_BITS = 38
_TASKS = 1 << 24
"""Tasks of one supervisor that can be told apart: more than live at once."""


class Marks:
    """The marks of one supervisor's tasks. ``token`` is the supervisor's own."""

    def __init__(self, token: int) -> None:
        self._token = token
        self._by_limit: dict[int, int] = {}
        self._by_value: dict[bytes, int] = {}

    def add(self, task: int, value: bytes) -> int:
        """The limit that marks ``task``. ``value`` is its variable's (``value_in``)."""
        limit = self._limit(task)
        self._by_limit[limit] = task
        if value:
            self._by_value[value] = task
        return limit

    def remove(self, task: int, value: bytes) -> None:
        self._by_limit.pop(self._limit(task), None)
        self._by_value.pop(value, None)

    def whose(self, pid: int) -> int | None:
        """The task a process was started by: one of these, or one that was (``RELEASED``)."""
        limit = _limit_on(pid)
        if limit // _TASKS == self._token:
            return self._by_limit.get(limit, RELEASED)
        return self._by_value.get(value_in(environment(pid))) if self._by_value else None

    def _limit(self, task: int) -> int:
        return self._token * _TASKS + task % _TASKS


def value_in(env: Mapping[bytes, bytes]) -> bytes:
    """The value that marks what has this environment."""
    return env.get(_VARIABLE, b"")


class LimitMark:
    """Puts the limit on this process while it starts something, and takes it off again."""

    def __init__(self) -> None:
        self._usual = resource.getrlimit(_LOCKS)

    def put(self, limit: int) -> None:
        try:
            resource.setrlimit(_LOCKS, (limit, self._usual[1]))
        except (OSError, ValueError):  # a lower hard limit: the variable has to do
            return

    def take_off(self) -> None:
        resource.setrlimit(_LOCKS, self._usual)


def _limit_on(pid: int) -> int:
    lines = read(b"/proc/%d/limits" % pid)
    at = lines.find(_LINE)
    if at < 0:
        return -1
    soft = lines[at + len(_LINE) :].split(None, 1)[0]
    return int(soft) if soft.isdigit() else -1


# A third mark, for what loses the other two: how late a timer may be. Linux hands a thread's timer
# slack down to everything it starts, through any change of user, environment and limits, and
# neither su nor PAM knows of it. A task's is the usual one (50 microseconds) and its number in
# nanoseconds, at most 33 microseconds more. Too few numbers to tell supervisors apart, so only
# children of this one are asked; and reading it takes a capability (CAP_SYS_NICE) that root has
# outside of containers and others do not.
_SET_TIMERSLACK, _GET_TIMERSLACK = 29, 30
_TASKS_BY_SLACK = 1 << 15


class SlackMark:
    def __init__(self) -> None:
        import ctypes  # not for runners, which load this module too

        self._prctl = ctypes.CDLL(None).prctl
        self._long = ctypes.c_ulong
        self._usual = int(self._prctl(_GET_TIMERSLACK, 0, 0, 0, 0))
        self._tasks: dict[int, int] = {}

    def put(self, task: int) -> None:
        """On what this process starts from now on."""
        slack = self._of(task)
        self._tasks[slack] = task
        self._prctl(_SET_TIMERSLACK, self._long(slack), 0, 0, 0)

    def take_off(self) -> None:
        self._prctl(_SET_TIMERSLACK, self._long(self._usual), 0, 0, 0)

    def remove(self, task: int) -> None:
        self._tasks.pop(self._of(task), None)

    def whose(self, pid: int) -> int | None:
        said = read(b"/proc/%d/timerslack_ns" % pid).strip()
        return self._tasks.get(int(said)) if said.isdigit() else None

    def _of(self, task: int) -> int:
        return self._usual + 1 + task % _TASKS_BY_SLACK


# Tasks, as their supervisor sees them.


class Task:
    __slots__ = (
        "gone",
        "grace",
        "late_grace",
        "leader",
        "mark",
        "names",
        "number",
        "released",
        "run",
        "since",
        "status",
        "until",
        "untrusted",
    )

    def __init__(self, number: int, leader: int, order: Spawn, boot: int) -> None:
        self.number = number
        self.leader = leader
        self.since = boot // processes.TICK
        """What began before, by the clock of ``/proc``, it cannot have started."""
        self.run = order.run
        self.grace = order.grace
        self.until = order.until
        self.late_grace = order.late_grace
        self.mark = value_in(order.env)
        self.names = names_in(order.env)
        self.status: int | None = None
        """Its leader's, once that has ended."""
        self.untrusted = False
        self.released = False
        self.gone = False
        """It was ended as a whole, and nothing of it was found."""


# Suspicion: which tasks may have started an orphan, and whether it has to end. Pure.
# A process that carries a mark is its task's. One that lost all of them (`su - user` empties the
# environment, and PAM sets limits anew) can only have come from what was there before it: a task
# that had begun by then and was not released; or an orphan that is older, and so one of its
# suspects. If it still names its run, no task of another run is suspected. So the suspects are few,
# usually one. It ends when all of them are being ended, for then it is one of theirs in any case.
# As long as one of them goes on, or was released (what that left running is a daemon that is
# wanted), it is in doubt: it is not touched, and no suspect is said to be gone. Where a doubt could
# not be told, because the runner is gone or not trusted any more, a task beside its successor's is
# the greater harm: then those that were released do not count.

Suspects = frozenset[int]
"""Numbers of tasks."""
Families = dict[int, list[Process]]


class Adopted:
    """An orphan: when it began, which tasks may have started it, and of which run that was, if it
    is known (else nothing)."""

    __slots__ = ("run", "start", "suspects")

    def __init__(self, start: int, suspects: Suspects, run: bytes = b"") -> None:
        self.start = start
        self.suspects = suspects
        self.run = run


def suspects_of(start: int, tasks: Mapping[int, int], elders: Iterable[Adopted]) -> Suspects:
    """Of an orphan without a mark that began at ``start``. ``tasks``: when each task began that
    was not released; ``elders``: the other orphans, also those that ended a moment ago. All by the
    coarse clock of ``/proc``, so what began at the same moment is suspected too."""
    possible = {task for task, since in tasks.items() if since <= start}
    for elder in elders:
        if elder.start <= start:
            possible |= elder.suspects
    return frozenset(possible)


def suspects_in(
    run: bytes,
    start: int,
    tasks: Mapping[int, int],
    others: Collection[int],
    elders: Iterable[Adopted],
) -> Suspects:
    """The same of one that names its ``run``: ``tasks`` are those of that run, ``others`` those of
    other runs. What was released counts unless it is known to be another run's."""
    related = [elder for elder in elders if elder.run in (run, b"")]
    return suspects_of(start, tasks, related).difference(others)


class Fates:
    """``doomed``: tasks that are being ended as a whole. ``unheard``: those of them whose end no
    connection is told of. ``going_on``: tasks neither being ended nor released."""

    __slots__ = ("doomed", "going_on", "unheard")

    def __init__(self, doomed: set[int], unheard: set[int], going_on: set[int]) -> None:
        self.doomed = doomed
        self.unheard = unheard
        self.going_on = going_on


def must_end(suspects: Suspects, fates: Fates) -> bool:
    spared = suspects - fates.doomed
    if not spared:
        return bool(suspects)
    return not suspects.isdisjoint(fates.unheard) and spared.isdisjoint(fates.going_on)


def divide(found: Mapping[Suspects, list[Process]], fates: Fates) -> tuple[Families, Families]:
    """What is to end with each task, and what each task is suspected of in vain."""
    families: Families = {}
    doubts: Families = {}
    for suspects, found_there in found.items():
        certain = len(suspects) == 1 or must_end(suspects, fates)
        for task in suspects:
            (families if certain else doubts).setdefault(task, []).extend(found_there)
    return families, doubts


# The tree of parents.

_NO_TASK: Suspects = frozenset()


def by_suspects(
    present: Mapping[int, Process],
    root: int,
    leaders: Mapping[int, int],
    whose: Callable[[Process], Suspects],
) -> dict[Suspects, list[Process]]:
    """Processes by the tasks they may belong to: that of the leader they are below, or those of the
    orphan they are below (``whose``).

    ``root`` is the supervisor, ``leaders`` the task of each leader that was not reaped yet. Orphans
    are children of the supervisor that it did not start, and whose parent vanished while we looked.
    """
    known: dict[int, Suspects] = {root: _NO_TASK}
    known.update((pid, frozenset((task,))) for pid, task in leaders.items())
    members: dict[Suspects, list[Process]] = {}
    for process in present.values():
        suspects = _suspects_of(process, present, root, known, whose)
        if suspects:
            members.setdefault(suspects, []).append(process)
    return members


def _suspects_of(
    process: Process,
    present: Mapping[int, Process],
    root: int,
    known: dict[int, Suspects],
    whose: Callable[[Process], Suspects],
) -> Suspects:
    line: list[int] = []
    suspects = _NO_TASK
    while len(line) <= len(present):  # numbers given anew while we looked could make a circle
        if process.pid in known:
            suspects = known[process.pid]
            break
        line.append(process.pid)
        above = present.get(process.parent)
        if process.parent == root or (above is None and process.parent):
            suspects = whose(process)
            break
        if above is None:
            break
        process = above
    for pid in line:
        known[pid] = suspects
    return suspects


def by_marks(present: Mapping[int, Process], whose: Callable[[int], int | None]) -> Families:
    """The same when there is no supervisor any more: only the marks tell."""
    members: Families = {}
    for process in present.values():
        task = whose(process.pid)
        if task is not None:
            members.setdefault(task, []).append(process)
    return members


# Orphans: the children of the supervisor that it did not start.
# Each is looked at when it is first seen, at the latest before the next task is started or
# released: which tasks may have started it is remembered from then on, whatever becomes of the
# marks. Until it is reaped its number is not given to another process. A relay that forks and exits
# again and again never stands still, but each runner in it is our child from the moment the one
# before it is gone, and the kernel lists our own children in microseconds: a new one can be stopped
# first and asked afterwards.

_MOST_CATCHES = 200
_QUIET = 3
_CHUNK = 64 * 1024
_UNSEEN = 0
"""Stands for whatever released tasks left behind, where it cannot be listed."""

Adopt = Callable[[int, Collection[Adopted]], Adopted]
"""Finds out about a new one, given the others."""


class Orphans:
    def __init__(self, adopt: Adopt) -> None:
        self._adopt = adopt
        self._adopted: dict[int, Adopted] = {}
        self._departed: list[Adopted] = []
        """Reaped since the last look: what they left behind is not known yet."""
        try:
            self._list = os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without: all processes have to be looked at
            self._list = -1

    def note(self, leaders: Collection[int]) -> bool:
        """Find out about all that are there; whether that was possible."""
        try:
            for pid in self._new(leaders):
                self.of(pid)
        except OSError:  # nothing left to look with
            return False
        self._departed.clear()
        return self._list >= 0

    def doubt_from(self, since: int) -> None:
        """A task that began then was released, and it is not known what it left behind."""
        first = self._adopted.get(_UNSEEN)
        if first is None or since < first.start:
            self._adopted[_UNSEEN] = Adopted(since, frozenset((RELEASED,)))

    def there(self) -> list[int]:
        """All children of ours, leaders too, the oldest first."""
        return [int(pid) for pid in self._listed().split()]

    def _listed(self) -> bytes:
        listed = b""
        while self._list >= 0 and (more := os.pread(self._list, _CHUNK, len(listed))):
            listed += more
        return listed

    def of(self, pid: int) -> Adopted:
        """Of a child of ours that is no leader."""
        adopted = self._adopted.get(pid)
        if adopted is None:
            others = [*self._adopted.values(), *self._departed]
            adopted = self._adopted[pid] = self._adopt(pid, others)
        return adopted

    def reaped(self, pid: int) -> None:
        adopted = self._adopted.pop(pid, None)
        if adopted is not None and self._list >= 0:
            self._departed.append(adopted)

    def mentioned(self) -> set[int]:
        """Tasks that may have started one of those that are there."""
        return {task for adopted in self._adopted.values() for task in adopted.suspects}

    # Catching.

    def catch_all(
        self,
        must_end: Callable[[Adopted], bool],
        leaders: Collection[int],
        reap: Callable[[], None],
    ) -> None:
        """Until no new one comes. What is there now can be asked at leisure; what comes while we
        look is in a hurry."""
        self.catch(must_end, leaders, hold=False)
        quiet = 0
        for _ in range(_MOST_CATCHES):
            reap()
            quiet = 0 if self.catch(must_end, leaders, hold=True) else quiet + 1
            if quiet == _QUIET:
                return

    def catch(
        self, must_end: Callable[[Adopted], bool], leaders: Collection[int], *, hold: bool
    ) -> bool:
        """Kill the new children of ours that have to end; whether there were new ones. ``hold``:
        stop them before they are asked. Those of others then go on."""
        new = self._new(leaders)
        for pid in new if hold else ():
            _signal(pid, SIGSTOP)
        for pid in new:
            if must_end(self.of(pid)):
                _signal(pid, SIGKILL)
            elif hold:
                _signal(pid, SIGCONT)
        self._departed.clear()
        return bool(new)

    def _new(self, leaders: Collection[int]) -> list[int]:
        """The youngest first."""
        listed = self._listed()
        if listed.count(b" ") == len(leaders):  # no others: leaders stay until we reap them
            return []
        there = map(int, reversed(listed.split()))
        return [pid for pid in there if pid not in self._adopted and pid not in leaders]


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


# Lineage: finds the processes of each task by all of the above.

_AT_ANY_TIME = 1 << 62


class Seen:
    """``families``: what is to end with each task. ``doubts``: what may be another's. ``unseen``:
    tasks of which something may be there that ``/proc`` does not show."""

    __slots__ = ("doubts", "families", "present", "unseen")

    def __init__(self, present: dict[int, Process]) -> None:
        self.present = present
        self.families: Families = {}
        self.doubts: Families = {}
        self.unseen: set[int] = set()


class Lineage:
    """``tasks`` and ``leaders`` (those that were not reaped) are the task table's, by number."""

    def __init__(
        self,
        token: int,
        groups: TaskGroups,
        tasks: Mapping[int, Task],
        leaders: Mapping[int, Task],
    ) -> None:
        self._groups = groups
        self._tasks = tasks
        self._leaders = leaders
        self._marks = Marks(token)
        self._branding = LimitMark()
        self._slack = SlackMark()
        self._orphans = Orphans(self._adopt)
        self._condemned: set[int] = set()
        """Tasks that were ended as a whole and could not be said to be gone."""

    # Marks.

    def mark(self, number: int, value: bytes) -> None:
        """Put the marks of a task on whatever is started from now on."""
        self._orphans.note(self._leaders)
        self._branding.put(self._marks.add(number, value))
        self._slack.put(number)

    def mark_no_more(self) -> None:
        self._branding.take_off()
        self._slack.take_off()

    def forget(self, number: int, value: bytes) -> None:
        self._marks.remove(number, value)
        self._slack.remove(number)

    # Orphans.

    def release(self, task: Task) -> None:
        """Before it is forgotten: what is there now may be a daemon it wanted."""
        if not self._orphans.note(self._leaders):
            self._orphans.doubt_from(task.since)
        self.forget(task.number, task.mark)

    def reaped(self, pid: int) -> None:
        self._orphans.reaped(pid)

    def condemn(self, task: Task) -> None:
        self._condemned &= self._orphans.mentioned()
        self._condemned.add(task.number)

    def catch(self, killing: set[int], unheard: set[int], reap: Callable[[], None]) -> None:
        """What belongs to these tasks and is too quick for a look."""
        fates = self._fates(killing, unheard)
        self._orphans.catch_all(
            lambda orphan: must_end(orphan.suspects, fates), self._leaders, reap
        )

    # Looking.

    def look(self, ending: set[int], unheard: set[int]) -> Seen:
        """``ending``: tasks that are being ended as a whole; ``unheard``: while that is not heard.
        ``OSError``: nothing left to look with."""
        seen = Seen(processes.all_processes())
        self._complete(seen)
        leaders = {pid: task.number for pid, task in self._leaders.items()}
        found = by_suspects(seen.present, os.getpid(), leaders, self._whose)
        fates = self._fates(ending, unheard)
        seen.families, seen.doubts = divide(found, fates)
        return seen

    def _fates(self, ending: set[int], unheard: set[int]) -> Fates:
        doomed = ending | self._condemned
        return Fates(doomed, unheard & ending, self._tasks.keys() - doomed)

    def _complete(self, seen: Seen) -> None:
        """What came to us while the others were counted was listed under a parent that is gone, or
        not at all."""
        for pid in self._orphans.there():
            listed = seen.present.get(pid)
            if listed is not None and listed.parent == os.getpid():
                continue
            process = processes.look_at(pid)
            if process is not None:
                seen.present[pid] = process
            elif pid not in self._leaders:
                seen.unseen |= self._orphans.of(pid).suspects

    def _whose(self, orphan: Process) -> Suspects:
        if orphan.parent == os.getpid():
            return self._orphans.of(orphan.pid).suspects
        task = self._known(orphan.pid)
        return frozenset(() if task is None else (task,))

    def _known(self, pid: int) -> int | None:
        """The group comes first: it is not lost by accident, nor had from another task."""
        task = self._groups.whose(pid)
        return self._marks.whose(pid) if task is None else task

    def _adopt(self, pid: int, others: Collection[Adopted]) -> Adopted:
        names = names_of(pid)
        task = self._known(pid)
        if task is not None:
            since = self._tasks[task].since if task in self._tasks else 0
            return self._adopted(since, frozenset((task,)), names)
        process = processes.look_at(pid)
        if process is None:  # not shown to us, but there
            suspects = self._suspects(_AT_ANY_TIME, names, others)
            return self._adopted(_AT_ANY_TIME, suspects, names)
        task = self._of_session(process) or self._named(process, names) or self._slack.whose(pid)
        if task is not None and self._tasks[task].since <= process.start:
            return self._adopted(process.start, frozenset((task,)), names)
        suspects = self._suspects(process.start, names, others)
        return self._adopted(process.start, suspects, names)

    def _adopted(self, start: int, suspects: Suspects, names: Names) -> Adopted:
        runs = {self._tasks[each].run if each in self._tasks else b"" for each in suspects}
        return Adopted(start, suspects, names.run or (runs.pop() if len(runs) == 1 else b""))

    def _suspects(self, start: int, names: Names, others: Collection[Adopted]) -> Suspects:
        tasks = {each.number: each.since for each in self._tasks.values() if not each.gone}
        of_run = {
            number: since
            for number, since in tasks.items()
            if names.run and since <= start and self._tasks[number].names.run == names.run
        }
        if not of_run:  # a run we know nothing of says nothing
            return suspects_of(start, tasks, others)
        elsewhere = [each.number for each in self._tasks.values() if each.names.run != names.run]
        return suspects_in(names.run, start, of_run, elsewhere, others)

    def _named(self, process: Process, names: Names) -> int | None:
        """The last one of that name that can have started it: a task may have several commands."""
        candidates = (
            each.number
            for each in self._tasks.values()
            if names.task and each.names.task == names.task and each.since <= process.start
        )
        return max(candidates, default=None)

    def _of_session(self, process: Process) -> int | None:
        """Each leader has a session and a group of its own."""
        theirs = (process.session, process.group)
        return next((each.number for each in self._tasks.values() if each.leader in theirs), None)
