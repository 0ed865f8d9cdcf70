"""The tasks of one supervisor, from SPAWN to RELEASE. The package's head tells their states."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import inf
from signal import SIGKILL, SIGTERM, Signals

from tenure.transports.supervisor import census, frames, marks, spawning
from tenure.transports.supervisor.census import Process
from tenure.transports.supervisor.demise import Demise, Orders
from tenure.transports.supervisor.enclosures import Enclosures
from tenure.transports.supervisor.frames import Spawn
from tenure.transports.supervisor.lineage import Lineage, Seen
from tenure.transports.supervisor.task import Task
from tenure.transports.supervisor.task_groups import TaskGroups

_A_WHILE, _A_MOMENT = 0.1, 0.01
_TRUST_LOOK = 1.0
"""Seconds at most between two looks at the boot clock: a sleeping machine stops the other one."""


class Wardship:
    """``tell`` sends a frame to the runner. Times are passed in: ``now`` in seconds of the
    monotonic clock, ``boot`` in nanoseconds of the boot clock."""

    def __init__(
        self,
        tell: Callable[[bytes], None],
        token: int,
        groups: TaskGroups,
        enclosures: Enclosures,
        hear: Sequence[Signals] = (),
    ) -> None:
        self._tell = tell
        self._groups = groups
        self._enclosures = enclosures
        self._hear = hear
        self._tasks: dict[int, Task] = {}
        self._by_leader: dict[int, Task] = {}
        self._lineage = Lineage(token, groups, self._tasks, self._by_leader)
        self._dying: dict[int, Demise] = {}
        self._newest = 0
        self._just_started = self._untidy = False
        self._distrust_at: float = inf
        """Nobody has to be distrusted before this moment of the boot clock."""
        self._alone = False

    @property
    def empty(self) -> bool:
        return not self._tasks

    # What the runner asks for

    def spawn(self, number: int, order: Spawn, fds: Sequence[int], boot: int) -> None:
        if order.until and boot >= order.until:
            self._tell(frames.frame(frames.REFUSED, number, frames.refusal(0, frames.TO_TRUST)))
            return
        value = marks.value_in(order.env)
        self._newest, self._just_started = number, True
        self._lineage.mark(number, value)
        self._groups.enter(number)
        try:
            leader = spawning.start(order, fds, self._hear)
        except spawning.CannotStart as refused:
            self._lineage.forget(number, value)
            self._groups.release(number)
            body = frames.refusal(refused.number, refused.what)
            self._tell(frames.frame(frames.REFUSED, number, body))
            return
        finally:
            self._groups.leave()
            self._lineage.mark_no_more()
        task = self._tasks[number] = self._by_leader[leader] = Task(number, leader, order, boot)
        self._heed(task)

    def end(self, number: int, grace: float, now: float, *, only_group: bool = False) -> None:
        task = self._tasks.get(number)
        if task is not None:
            self._tell(frames.frame(frames.LEADER, number, frames.number(task.leader)))
            self._doom(task, grace, now, only_group=only_group)

    def end_all(self, now: float) -> None:
        """The runner is gone: what it did not release ends, and nobody waits for an answer."""
        self._alone = True
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
                self._lineage.reaped(pid)
                self._groups.look_again()
                continue
            task.status = status
            self._tell(frames.frame(frames.EXITED, task.number, frames.number(status)))
            if task.number in self._dying:
                self._dying[task.number].look_at = 0.0

    def tidy(self) -> None:
        """What can be done while nobody waits for an answer: in a turn that started nothing, since
        a new task wants the processors for itself first. What is left to do then is a reason for
        another turn."""
        self._untidy = self._just_started and self._groups.possible
        self._just_started = False
        if not self._untidy:
            self._groups.tidy(self._newest + 1)
            self._untidy = self._groups.untidy

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
            whole = {number for number, demise in self._dying.items() if not demise.only_group}
            unheard = {each for each in whole if self._alone or self._tasks[each].untrusted}
            for number in whole:
                if now >= self._dying[number].kill_at:
                    self._groups.freeze(number)  # who stands still can be counted
            seen = self._lineage.look(whole, unheard)
            for number in due:
                self._advance(self._tasks[number], seen, now)
            killing = {each for each in whole & self._dying.keys() if self._dying[each].killing}
            if killing:
                self._lineage.catch(killing, unheard, self.reap)
        except OSError:  # nothing left to look with
            for demise in self._dying.values():
                demise.look_at = max(demise.look_at, now + _A_WHILE)

    def until_next_look(self, now: float, boot: int) -> float:
        """Seconds until something has to be looked at whatever happens."""
        looks = [demise.look_at - now for demise in self._dying.values()]
        if self._distrust_at < inf:
            looks.append(min(_TRUST_LOOK, (self._distrust_at - boot) / 1e9))
        if self._untidy:
            looks.append(_A_MOMENT)
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

    def _advance(self, task: Task, seen: Seen, now: float) -> None:
        demise = self._dying[task.number]
        inside = set(self._groups.inside(task.number, seen.everybody))
        family = self._family(task, seen, inside)
        doubts = seen.doubts.get(task.number, [])
        hidden = _hidden(task) or task.number in seen.unseen or self._groups.inhabited(task.number)
        if demise.only_group:
            family = [process for process in family if process.group == task.leader]
            doubts, hidden = [], _hidden(task)
        frozen = not demise.only_group and now >= demise.kill_at
        self._carry_out(task, demise.step(now, family), inside if frozen else None)
        gone = demise.over(now, family, hidden=hidden, doubtful=bool(doubts))
        if gone is None:
            return
        if gone:
            body = frames.number(demise.signalled)
            self._tell(frames.frame(frames.GONE, task.number, body))
        else:
            left = [process.pid for process in (*family, *doubts) if process.alive]
            body = frames.numbers(left[:1000] or [task.leader])
            self._tell(frames.frame(frames.LEFT, task.number, body))
        if not demise.only_group:
            task.gone = gone
            if not gone:
                self._lineage.condemn(task)
        del self._dying[task.number]
        self._enclosures.open(task.number)
        self._groups.thaw(task.number)
        if task.released:
            self._forget(task)

    def _family(self, task: Task, seen: Seen, inside: set[int]) -> list[Process]:
        family = seen.families.get(task.number, [])
        more = inside.union(self._enclosures.inside(task.number))
        more.difference_update(process.pid for process in family)
        return family + [seen.everybody[pid] for pid in more if pid in seen.everybody]

    def _carry_out(self, task: Task, orders: Orders, held: set[int] | None) -> None:
        """``held``: those in the group of the task, if that is frozen."""
        killed = [process.pid for process, number in orders if number == SIGKILL]
        at_large = self._at_large(task, killed, held)
        self._kill_enclosed(task, at_large)
        warned: set[int] = set()
        refused: list[int] = []
        for process, number in orders:
            if number == SIGTERM:
                if process.group not in warned:
                    warned.add(process.group)
                    census.send_to_group(process, number)
            elif not census.send(process, number):
                refused.append(process.pid)
        if killed:
            self._kill_enclosed(task, [pid for pid in refused if pid not in at_large])

    def _at_large(self, task: Task, pids: list[int], held: set[int] | None) -> list[int]:
        if held is None:
            return pids
        # Who died since the look is not listed any more, but still tells where he was.
        return [pid for pid in pids if pid not in held and self._groups.whose(pid) != task.number]

    def _kill_enclosed(self, task: Task, pids: list[int]) -> None:
        if pids:
            self._enclosures.enclose(task.number, pids)
            self._enclosures.kill(task.number)

    def _forget(self, task: Task) -> None:
        self._lineage.release(task)
        self._groups.release(task.number)
        del self._tasks[task.number]
        if self._by_leader.get(task.leader) is task:
            del self._by_leader[task.leader]


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
