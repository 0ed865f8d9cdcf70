"""A third mark, for what loses the other two: how late a timer may be.

Linux hands a thread's timer slack down to everything it starts, through any change of user,
environment and limits, and neither ``su`` nor PAM knows of it. A task's is the usual one (50
microseconds) and its number in nanoseconds, at most 33 microseconds more. Too few numbers to tell
supervisors apart, so only children of this one are asked; and reading it takes a capability
(``CAP_SYS_NICE``) that root has outside of containers and others do not.
"""

from __future__ import annotations

import ctypes

from tenure.transports.supervisor.census import read

_SET_TIMERSLACK, _GET_TIMERSLACK = 29, 30
_TASKS = 1 << 15


class Slack:
    def __init__(self) -> None:
        self._prctl = ctypes.CDLL(None).prctl
        self._usual = int(self._prctl(_GET_TIMERSLACK, 0, 0, 0, 0))
        self._tasks: dict[int, int] = {}

    def put(self, task: int) -> None:
        """On what this process starts from now on."""
        slack = self._of(task)
        self._tasks[slack] = task
        self._prctl(_SET_TIMERSLACK, ctypes.c_ulong(slack), 0, 0, 0)

    def take_off(self) -> None:
        self._prctl(_SET_TIMERSLACK, ctypes.c_ulong(self._usual), 0, 0, 0)

    def remove(self, task: int) -> None:
        self._tasks.pop(self._of(task), None)

    def whose(self, pid: int) -> int | None:
        said = read(b"/proc/%d/timerslack_ns" % pid).strip()
        return self._tasks.get(int(said)) if said.isdigit() else None

    def _of(self, task: int) -> int:
        return self._usual + 1 + task % _TASKS
