"""Enclosures for what has to be killed and does not stand still in the group of its task, where
the system lets us make control groups.

That is everything where tasks have no groups; else what left its group, what stayed in the process
group of a task that ended by itself, and what is not ours to signal. It is moved, process by
process, into a group that is frozen: what is forked from then on is born inside and stands still.
Then one write kills everything in it at one moment, whoever's it is. A move may hold up all forks
of the machine for some milliseconds, so nobody is moved who can be killed without.

Nothing here raises: without it, signals do the work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tenure.transports.supervisor import cgroups
from tenure.transports.supervisor.cgroups import numbers_in, remove, write


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
            cgroups.thaw(group)
            remove(group)

    def close(self) -> None:
        if self._ours is not None:
            cgroups.clear(self._ours)
            self._ours = None

    def _make(self, task: int) -> str | None:
        if self._home is None:
            return None
        if self._ours is None:
            cgroups.sweep(self._home)
            self._ours = f"{self._home}/{cgroups.name_of(os.getpid())}"
        group = f"{self._ours}/{task}"
        try:
            os.makedirs(group)
        except OSError:
            self._home = None  # not allowed: not tried again
            return None
        cgroups.freeze(group)
        self._of_task[task] = group
        return group
