"""How a task ends before its time: TERM, grace, STOP, KILL, and looking until nothing is there.

Pure: what was found goes in, what to signal comes out. STOP comes before KILL because a tree that
forks faster than it is counted has to stand still first: a killed process frees its place for
another, and its children change parents under our eyes; a stopped one does neither.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from math import inf

from tenure.transports.supervisor.census import Process

AFTER_KILL = 5.0
"""Seconds the system has to carry out a KILL. A process it cannot end (stuck in a driver, another
user's) is reported rather than waited for."""
TO_CLEAR_UP = 0.5
"""Seconds after the grace in which it may still turn out whose a process is."""
_FIRST_LOOK, _LAST_LOOK = 0.002, 0.1
_MOST_STANDSTILLS = 20
_MOST_DOUBTS = 20
"""Looks without a pause for a moment of certainty."""

Orders = list[tuple[Process, int]]


class Demise:
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
        self._pause = _FIRST_LOOK
        self._give_up_at = inf

    def hasten(self, now: float, grace: float) -> None:
        """Nobody has more patience than who has the least."""
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
            self.look_at = now + _FIRST_LOOK
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
            self._pause = _FIRST_LOOK
            self._give_up_at = now + AFTER_KILL
        self._wait(now)
        return [(each, _KILL) for each in living]

    def over(
        self, now: float, members: Sequence[Process], *, hidden: bool, doubtful: bool = False
    ) -> bool | None:
        """True: all gone. False: what is left cannot be ended. ``None``: nobody can say yet.

        Zombies among ``members`` died while we looked, and may have left something behind that we
        missed: then it takes another look. ``hidden``: something is there that we cannot see.
        ``doubtful``: something is there that may be another's.
        """
        if not members and not hidden:
            if not doubtful:
                return True
            return False if now >= self.kill_at + TO_CLEAR_UP else None
        if not any(process.alive for process in members) and self._doubts < _MOST_DOUBTS:
            self._doubts += 1
            self.look_at = now
        return False if now >= self._give_up_at else None

    def _wait(self, now: float) -> None:
        pause = self._pause
        self.look_at = now + (pause if now >= self.kill_at else min(pause, self.kill_at - now))
        self._pause = min(2 * self._pause, _LAST_LOOK)


_TERM, _CONT, _STOP, _KILL = signal.SIGTERM, signal.SIGCONT, signal.SIGSTOP, signal.SIGKILL
