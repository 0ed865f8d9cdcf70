"""The tasks of one supervisor, from SPAWN to RELEASE. The package's head tells their states."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import inf
from signal import SIGKILL, SIGTERM, Signals

from tenure.transports.supervisor import census, frames, marks, spawning
from tenure.transports.supervisor.census import Process
from tenure.transports.supervisor.cgroups import Enclosures
from tenure.transports.supervisor.demise import Demise, Orders
from tenure.transports.supervisor.frames import Spawn
from tenure.transports.supervisor.kinship import kin
from tenure.transports.supervisor.orphans import Orphans

_A_WHILE = 0.1
_TRUST_LOOK = 1.0
"""Seconds at most between two looks at the boot clock: a sleeping machine stops the other one."""


class Task:
    """``status`` is its leader's, once that has ended."""

    __slots__ = (
        "grace",
        "late_grace",
        "leader",
        "mark",
        "number",
        "released",
        "run",
        "status",
        "until",
        "untrusted",
    )

    def __init__(self, number: int, leader: int, order: Spawn) -> None:
        self.number = number
        self.leader = leader
        self.run = order.run
        self.grace = order.grace
        self.until = order.until
        self.late_grace = order.late_grace
        self.mark = marks.value_in(order.env)
        self.status: int | None = None
        self.untrusted = False
        self.released = False


class Wardship:
    """``tell`` sends a frame to the runner. Times are passed in: ``now`` in seconds of the
    monotonic clock, ``boot`` in nanoseconds of the boot clock."""

    def __init__(
        self,
        tell: Callable[[bytes], None],
        token: int,
        enclosures: Enclosures,
        hear: Sequence[Signals] = (),
    ) -> None:
        self._tell = tell
        self._marks = marks.Marks(token)
        self._branding = marks.Branding()
        self._enclosures = enclosures
        self._hear = hear
        self._tasks: dict[int, Task] = {}
        self._by_leader: dict[int, Task] = {}
        self._dying: dict[int, Demise] = {}
        self._distrust_at: float = inf
        """Nobody has to be distrusted before this moment of the boot clock."""
        self._orphans = Orphans(self._marks.whose)

    @property
    def empty(self) -> bool:
        return not self._tasks

    # What the runner asks for

    def spawn(self, number: int, order: Spawn, fds: Sequence[int], boot: int) -> None:
        if order.until and boot >= order.until:
            self._tell(frames.frame(frames.REFUSED, number, frames.refusal(0, frames.TO_TRUST)))
            return
        value = marks.value_in(order.env)
        self._branding.put(self._marks.add(number, value))
        try:
            leader = spawning.start(order, fds, self._hear)
        except spawning.CannotStart as refused:
            self._marks.remove(number, value)
            body = frames.refusal(refused.number, refused.what)
            self._tell(frames.frame(frames.REFUSED, number, body))
            return
        finally:
            self._branding.take_off()
        task = self._tasks[number] = self._by_leader[leader] = Task(number, leader, order)
        self._heed(task)

    def end(self, number: int, grace: float, now: float, *, only_group: bool = False) -> None:
        task = self._tasks.get(number)
        if task is not None:
            self._tell(frames.frame(frames.LEADER, number, frames.number(task.leader)))
            self._doom(task, grace, now, only_group=only_group)

    def end_all(self, now: float) -> None:
        """The runner is gone: what it did not release ends, and nobody waits for an answer."""
        for task in list(self._tasks.values()):
            task.released = True
            self._doom(task, task.grace, now)

    def release(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is None:
            return
        task.released = True
        if number not in self._dying:
            self._forget(task)

    def trust(self, run: bytes, until: int, late_grace: float) -> None:
        for task in self._tasks.values():
            if task.run == run:
                task.until = until
                task.late_grace = late_grace
                self._heed(task)

    # What happens by itself

    def reap(self) -> None:
        """Everybody who ended: leaders, and orphans that came to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            task = self._by_leader.pop(pid, None)
            if task is None:
                self._orphans.reaped(pid)
                continue
            task.status = status
            self._tell(frames.frame(frames.EXITED, task.number, frames.number(status)))
            if task.number in self._dying:
                self._dying[task.number].look_at = 0.0

    def check_trust(self, now: float, boot: int) -> None:
        if boot < self._distrust_at:
            return
        self._distrust_at = inf
        for task in list(self._tasks.values()):
            if task.until and boot >= task.until and not task.untrusted:
                task.untrusted = True
                self._tell(frames.frame(frames.UNTRUSTED, task.number))
                self._doom(task, min(task.grace, task.late_grace), now)
            self._heed(task)

    def pursue(self, now: float) -> None:
        """Look at what is being ended, if it is time, and do what comes next."""
        due = [number for number, demise in self._dying.items() if now >= demise.look_at]
        if not due:
            return
        try:
            families = self._families(due)
            for number in due:
                self._advance(self._tasks[number], families[number], now)
            killing = {number for number, demise in self._dying.items() if demise.killing}
            if killing:
                self._orphans.catch_all(killing, self._by_leader, self.reap)
        except OSError:  # nothing left to look with
            for demise in self._dying.values():
                demise.look_at = max(demise.look_at, now + _A_WHILE)

    def until_next_look(self, now: float, boot: int) -> float:
        """Seconds until something has to be looked at whatever happens."""
        looks = [demise.look_at - now for demise in self._dying.values()]
        if self._distrust_at < inf:
            looks.append(min(_TRUST_LOOK, (self._distrust_at - boot) / 1e9))
        return max(0.0, min(looks, default=inf))

    def _heed(self, task: Task) -> None:
        if task.until and not task.untrusted:
            self._distrust_at = min(self._distrust_at, task.until)

    def _doom(self, task: Task, grace: float, now: float, *, only_group: bool = False) -> None:
        demise = self._dying.get(task.number)
        if demise is None:
            self._dying[task.number] = Demise(now, grace, only_group=only_group)
            return
        demise.hasten(now, grace)
        if not only_group:
            demise.widen()

    def _families(self, due: Sequence[int]) -> dict[int, list[Process]]:
        everybody = census.everybody()
        leaders = {pid: task.number for pid, task in self._by_leader.items()}
        families = kin(everybody, os.getpid(), leaders, self._marks.whose)
        for number in due:
            family = families.setdefault(number, [])
            known = {process.pid for process in family}
            inside = (pid for pid in self._enclosures.inside(number) if pid not in known)
            family += [everybody[pid] for pid in inside if pid in everybody]
        return families

    def _advance(self, task: Task, family: list[Process], now: float) -> None:
        demise = self._dying[task.number]
        if demise.only_group:
            family = [process for process in family if process.group == task.leader]
        self._carry_out(task, demise.step(now, family))
        gone = demise.over(now, family, hidden=_hidden(task))
        if gone is None:
            return
        if gone:
            body = frames.number(demise.signalled)
            self._tell(frames.frame(frames.GONE, task.number, body))
        else:
            left = [process.pid for process in family if process.alive] or [task.leader]
            self._tell(frames.frame(frames.LEFT, task.number, frames.numbers(left[:1000])))
        del self._dying[task.number]
        self._enclosures.open(task.number)
        if task.released:
            self._forget(task)

    def _carry_out(self, task: Task, orders: Orders) -> None:
        if any(number == SIGKILL for _, number in orders):
            self._enclosures.enclose(task.number, [process.pid for process, _ in orders])
            self._enclosures.kill(task.number)
        warned: set[int] = set()
        for process, number in orders:
            if number != SIGTERM:
                census.send(process, number)
            elif process.group not in warned:
                warned.add(process.group)
                census.send_to_group(process, number)

    def _forget(self, task: Task) -> None:
        del self._tasks[task.number]
        if self._by_leader.get(task.leader) is task:
            del self._by_leader[task.leader]
        self._marks.remove(task.number, task.mark)


def _hidden(task: Task) -> bool:
    """Whether something of it is there although ``/proc`` may not show it to us: a leader nobody
    reaped, or another user's processes in its group."""
    if task.status is None:
        return True
    try:
        os.killpg(task.leader, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False
