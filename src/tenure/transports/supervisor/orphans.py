"""Catching what forks and exits faster than all processes can be looked at.

Such a relay never stands still, but each runner in it is our child from the moment the one before
it is gone. The kernel lists our own children in microseconds, and until we reap them their numbers
are nobody else's: a new one can be stopped first and asked for its mark afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from signal import SIGCONT, SIGKILL, SIGSTOP

_MOST_CATCHES = 200
_QUIET = 3


class Orphans:
    """``whose`` tells the task of a process by its marks."""

    def __init__(self, whose: Callable[[int], int | None]) -> None:
        self._whose = whose
        self._known: set[int] = set()
        try:
            self._list = os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without: all processes have to be looked at
            self._list = -1

    def catch_all(
        self, doomed: Container[int], leaders: Container[int], reap: Callable[[], None]
    ) -> None:
        """Until nobody new comes. Who is there now can be asked at leisure; who comes while we look
        is in a hurry."""
        self.catch(doomed, leaders, hold=False)
        quiet = 0
        for _ in range(_MOST_CATCHES):
            reap()
            quiet = 0 if self.catch(doomed, leaders, hold=True) else quiet + 1
            if quiet == _QUIET:
                return

    def catch(self, doomed: Container[int], leaders: Container[int], *, hold: bool) -> bool:
        """Kill the children of ours that belong to ``doomed`` tasks; whether there were new ones.
        ``hold``: stop them before they are asked. Those of others then go on."""
        if self._list < 0:
            return False
        found = [int(pid) for pid in os.pread(self._list, 1 << 20, 0).split()]
        new = [pid for pid in reversed(found) if pid not in self._known and pid not in leaders]
        for pid in new if hold else ():
            _send(pid, SIGSTOP)
        for pid in new:
            if self._whose(pid) in doomed:
                _send(pid, SIGKILL)
                continue
            self._known.add(pid)
            if hold:
                _send(pid, SIGCONT)
        return bool(new)

    def reaped(self, pid: int) -> None:
        self._known.discard(pid)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return
