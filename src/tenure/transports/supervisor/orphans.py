"""The children of the supervisor that it did not start: whose they are, and how to catch those that
are quicker than a look at all processes.

Each is looked at when it is first seen, at the latest before the next task is started or released:
whoever may have started it is remembered from then on, whatever becomes of the marks. So nobody is
suspected of what was there before, nor, having left nothing behind, of what came later. Until we
reap them their numbers are nobody else's.

A relay that forks and exits again and again never stands still, but each runner in it is our child
from the moment the one before it is gone, and the kernel lists our own children in microseconds: a
new one can be stopped first and asked afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from signal import SIGCONT, SIGKILL, SIGSTOP

from tenure.transports.supervisor.suspicion import RELEASED, Adopted

_MOST_CATCHES = 200
_QUIET = 3
_CHUNK = 64 * 1024
_UNSEEN = 0
"""Stands for whatever released tasks left behind, where nobody can list it."""

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
        """Find out about everybody who is there; whether that was possible."""
        try:
            for pid in self._new(leaders):
                self.of(pid)
        except OSError:  # nothing left to look with
            return False
        self._departed.clear()
        return self._list >= 0

    def doubt_from(self, since: int) -> None:
        """A task that began then was released, and nobody knows what it left behind."""
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

    # Catching

    def catch_all(
        self,
        must_end: Callable[[Adopted], bool],
        leaders: Collection[int],
        reap: Callable[[], None],
    ) -> None:
        """Until nobody new comes. Who is there now can be asked at leisure; who comes while we look
        is in a hurry."""
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
            _send(pid, SIGSTOP)
        for pid in new:
            if must_end(self.of(pid)):
                _send(pid, SIGKILL)
            elif hold:
                _send(pid, SIGCONT)
        self._departed.clear()
        return bool(new)

    def _new(self, leaders: Collection[int]) -> list[int]:
        """The youngest first."""
        listed = self._listed()
        if listed.count(b" ") == len(leaders):  # nobody else: leaders stay until we reap them
            return []
        there = map(int, reversed(listed.split()))
        return [pid for pid in there if pid not in self._adopted and pid not in leaders]


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return
