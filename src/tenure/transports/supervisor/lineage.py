"""Finding out whose the processes are: groups, marks, parents, sessions, and who else could have
started what has none of them. ``suspicion`` decides; here is what it decides on."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping

from tenure.transports.supervisor import census, suspicion
from tenure.transports.supervisor.census import Process
from tenure.transports.supervisor.kinship import kin
from tenure.transports.supervisor.marks import Branding, Marks
from tenure.transports.supervisor.names import Names, names_of
from tenure.transports.supervisor.orphans import Orphans
from tenure.transports.supervisor.slack import Slack
from tenure.transports.supervisor.suspicion import Adopted, Families, Fates, Suspects
from tenure.transports.supervisor.task import Task
from tenure.transports.supervisor.task_groups import TaskGroups

_AT_ANY_TIME = 1 << 62


class Seen:
    """``families``: what is to end with each task. ``doubts``: what may be another's. ``unseen``:
    tasks of which something may be there that ``/proc`` does not show."""

    __slots__ = ("doubts", "everybody", "families", "unseen")

    def __init__(self, everybody: dict[int, Process]) -> None:
        self.everybody = everybody
        self.families: Families = {}
        self.doubts: Families = {}
        self.unseen: set[int] = set()


class Lineage:
    """``tasks`` and ``leaders`` (those that were not reaped) are their wardship's, by number."""

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
        self._branding = Branding()
        self._slack = Slack()
        self._orphans = Orphans(self._adopt)
        self._condemned: set[int] = set()
        """Tasks that were ended as a whole and could not be said to be gone."""

    # Marks

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

    # Orphans

    def release(self, task: Task) -> None:
        """Before it is forgotten: whoever is there now may be a daemon it wanted."""
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
            lambda orphan: suspicion.must_end(orphan.suspects, fates), self._leaders, reap
        )

    # Looking

    def look(self, ending: set[int], unheard: set[int]) -> Seen:
        """``ending``: tasks that are being ended as a whole; ``unheard``: while nobody may hear of
        it. ``OSError``: nothing left to look with."""
        seen = Seen(census.everybody())
        self._complete(seen)
        leaders = {pid: task.number for pid, task in self._leaders.items()}
        found = kin(seen.everybody, os.getpid(), leaders, self._whose)
        fates = self._fates(ending, unheard)
        seen.families, seen.doubts = suspicion.divide(found, fates)
        return seen

    def _fates(self, ending: set[int], unheard: set[int]) -> Fates:
        doomed = ending | self._condemned
        return Fates(doomed, unheard & ending, self._tasks.keys() - doomed)

    def _complete(self, seen: Seen) -> None:
        """Who came to us while the others were counted was listed under a parent that is gone, or
        not at all."""
        for pid in self._orphans.there():
            listed = seen.everybody.get(pid)
            if listed is not None and listed.parent == os.getpid():
                continue
            process = census.look_at(pid)
            if process is not None:
                seen.everybody[pid] = process
            elif pid not in self._leaders:
                seen.unseen |= self._orphans.of(pid).suspects

    def _whose(self, orphan: Process) -> Suspects:
        if orphan.parent == os.getpid():
            return self._orphans.of(orphan.pid).suspects
        task = self._known(orphan.pid)
        return frozenset(() if task is None else (task,))

    def _known(self, pid: int) -> int | None:
        """The group comes first: nobody loses it by accident, or has it from somebody else."""
        task = self._groups.whose(pid)
        return self._marks.whose(pid) if task is None else task

    def _adopt(self, pid: int, others: Collection[Adopted]) -> Adopted:
        names = names_of(pid)
        task = self._known(pid)
        if task is not None:
            since = self._tasks[task].since if task in self._tasks else 0
            return self._adopted(since, frozenset((task,)), names)
        process = census.look_at(pid)
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
            return suspicion.suspects_of(start, tasks, others)
        elsewhere = [each.number for each in self._tasks.values() if each.names.run != names.run]
        return suspicion.suspects_in(names.run, start, of_run, elsewhere, others)

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
