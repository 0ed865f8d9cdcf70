"""The supervisor's inside, where its outside cannot show it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure.transports.supervisor import processes, protocol
from tenure.transports.supervisor.cgroups import Enclosures, TaskGroups
from tenure.transports.supervisor.program import TaskTable
from tenure.transports.supervisor.protocol import Spawn, Splitter
from tenure.transports.supervisor.tree import (
    Adopted,
    LimitMark,
    Lineage,
    Marks,
    Orphans,
    Seen,
)

pytestmark = pytest.mark.slow

SECOND = 1_000_000_000


class Told:
    """What the task table tells its runner."""

    def __init__(self) -> None:
        self.data = b""

    def __call__(self, frame: bytes) -> None:
        self.data += frame

    @property
    def answers(self) -> list[tuple[int, int, bytes]]:
        return Splitter(protocol.MOST_ANSWERED).split(self.data)

    @property
    def kinds(self) -> list[int]:
        return [kind for kind, _, _ in self.answers]

    @property
    def leaders(self) -> set[int]:
        return {
            protocol.read_number(body) for kind, _, body in self.answers if kind == protocol.LEADER
        }

    def left_of(self, task: int) -> list[int] | None:
        """What was left when it ended, once it has."""
        for kind, number, body in self.answers:
            if number == task and kind in (protocol.GONE, protocol.LEFT):
                return protocol.read_numbers(body) if kind == protocol.LEFT else []
        return None


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Where a supervisor stands; and back again."""
    monkeypatch.chdir("/")
    return Told()


@pytest.fixture
def table(told: Told) -> Iterator[TaskTable]:
    table = TaskTable(told, token=7, groups=TaskGroups(None), enclosures=Enclosures(None))
    yield table
    for number in (1, 2):
        table.end(number, 0.0, 0.0)
    for leader in told.leaders & set(children()):
        os.kill(leader, signal.SIGKILL)
        os.waitpid(leader, 0)


def order(until: int = 0) -> Spawn:
    return Spawn(
        argv=[b"sleep", b"25"],
        env={b"PATH": os.environb[b"PATH"]},
        cwd=b"/",
        feed=False,
        grace=5.0,
        run=b"run",
        until=until,
        late_grace=5.0,
    )


def boot_time() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Started(NamedTuple):
    begun: int
    leader: int


def start(table: TaskTable, number: int = 1, *, lasts: int = 0, later: int = 0) -> Started:
    """Now, or ``later``; trusted as long as it ``lasts``."""
    begun, before = boot_time() + later, set(children())
    with Path("/dev/null").open("wb") as nowhere:
        until = begun + lasts if lasts else 0
        table.spawn(number, order(until), [nowhere.fileno()] * 2, begun)
    [leader] = set(children()) - before
    return Started(begun, leader)


def let_go(table: TaskTable, number: int, task: Started) -> None:
    """It ends by itself, and is released."""
    os.kill(task.leader, signal.SIGKILL)
    while task.leader in children():
        table.reap()
    table.release(number)


def end(
    table: TaskTable, told: Told, number: int, *, grace: float = 0.0, only_group: bool = False
) -> list[int] | None:
    """What is left of it, once that is known."""
    table.end(number, grace, 0.0, only_group=only_group)
    for moment in range(1000):
        table.reap()
        table.pursue(moment / 100)
        if told.left_of(number) is not None:
            break
        time.sleep(0.002)
    return told.left_of(number)


@contextmanager
def orphan() -> Iterator[int]:
    """A child that is nobody's by its marks."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "25"], {}, setsid=True)
    try:
        yield pid
    finally:
        if pid in children():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_it_sleeps_until_the_end_of_trust_but_never_long_by_the_other_clock(
    table: TaskTable,
) -> None:
    assert table.until_next_look(0.0, 0) == inf
    begun, _ = start(table, lasts=SECOND // 4)
    assert table.until_next_look(0.0, begun) == 0.25
    table.trust(b"run", begun + 100 * SECOND, 5.0)
    table.check_trust(0.0, begun + SECOND // 4)
    assert table.until_next_look(0.0, begun + SECOND // 4) == 1.0
    table.trust(b"run", 0, 5.0)
    table.check_trust(0.0, begun + 100 * SECOND)
    assert table.until_next_look(0.0, begun + 100 * SECOND) == inf


def test_a_runner_that_is_gone_is_still_held_to_its_trust(table: TaskTable, told: Told) -> None:
    begun, _ = start(table, lasts=SECOND)
    table.end_all(0.0)
    table.trust(b"run", begun + SECOND, 0.0)
    table.check_trust(0.5, begun + SECOND)
    table.pursue(0.5)
    assert protocol.UNTRUSTED in told.kinds
    assert table.until_next_look(0.5, begun + SECOND) == 0, "no grace is left"


def test_what_it_cannot_see_it_does_not_call_gone(
    table: TaskTable, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where ``/proc`` hides the processes of others."""
    start(table)
    table.end(1, 0.0, 0.0)
    monkeypatch.setattr(processes, "all_processes", dict)
    monkeypatch.setattr(processes, "look_at", lambda pid: None)
    for moment in (0.0, 0.1, processes.KILL_TIMEOUT_S):
        table.pursue(moment)
        assert protocol.GONE not in told.kinds
    table.pursue(processes.KILL_TIMEOUT_S + 0.2)
    assert told.kinds[-1] == protocol.LEFT


@pytest.mark.parametrize("only_group", [False, True])
def test_an_orphan_that_comes_after_the_look_is_caught_with_its_task(
    table: TaskTable, monkeypatch: pytest.MonkeyPatch, only_group: bool
) -> None:
    """As in a relay, whose runners are gone before all processes have been looked at. What ended by
    itself is not pursued like that."""
    runners: list[int] = []
    branding, look = LimitMark(), Lineage.look

    def too_early(lineage: Lineage, ending: set[int], unheard: set[int]) -> Seen:
        seen = look(lineage, ending, unheard)
        branding.put(Marks(7).add(1, b""))
        runners.append(os.posix_spawn("/bin/sleep", ["sleep", "25"], {}))
        branding.take_off()
        return seen

    start(table)
    with monkeypatch.context() as patched:
        patched.setattr(Lineage, "look", too_early)
        patched.setattr(processes, "all_processes", dict)
        patched.setattr(processes, "look_at", lambda pid: None)
        table.end(1, 0.0, 0.0, only_group=only_group)
        table.pursue(0.0)
    [runner] = runners
    ended_by = int(signal.SIGKILL)
    if runner in children():
        os.kill(runner, signal.SIGUSR1)  # of two signals the first one counts
        ended_by = os.WTERMSIG(os.waitpid(runner, 0)[1])
    assert ended_by == (signal.SIGUSR1 if only_group else signal.SIGKILL)


def test_a_name_no_process_can_have_refuses_the_task_only(told: Told) -> None:
    table = TaskTable(told, token=7, groups=TaskGroups(None), enclosures=Enclosures(None))
    wrong = order()
    wrong.env = {b"A=B": b""}
    table.spawn(1, wrong, [], boot=0)
    assert told.kinds == [protocol.REFUSED]
    assert table.empty


# -- orphans without marks ------------------------------------------------------------------------


def test_what_only_one_task_can_have_started_ends_with_it(table: TaskTable, told: Told) -> None:
    start(table)
    with orphan() as daemon:
        assert end(table, told, 1) == []
        assert daemon not in children()


def test_what_was_there_before_a_task_is_not_its_own(table: TaskTable, told: Told) -> None:
    with orphan() as daemon:
        start(table, later=SECOND)
        assert end(table, told, 1) == []
        assert daemon in children()


@pytest.mark.parametrize("why", ["canceled", "untrusted", "runner gone"])
def test_what_an_ended_task_may_have_left_stays_unless_nobody_could_be_told(
    table: TaskTable, told: Told, why: str
) -> None:
    first = start(table, 1)
    begun, _ = start(table, 2, lasts=SECOND)
    with orphan() as daemon:
        let_go(table, 1, first)
        if why == "runner gone":
            table.end_all(0.0)
        elif why == "untrusted":
            table.check_trust(0.0, begun + SECOND)
        assert end(table, told, 2) == ([daemon] if why == "canceled" else [])
        assert (daemon in children()) is (why == "canceled")


def test_what_left_the_group_of_a_task_that_ended_by_itself_lives_on(
    table: TaskTable, told: Told
) -> None:
    start(table)
    with orphan() as daemon:
        assert end(table, told, 1, only_group=True) == []
        assert daemon in children()


# -- orphans --------------------------------------------------------------------------------------


def test_new_children_are_held_and_asked() -> None:
    """It cannot fork and be gone while somebody finds out whose it is."""
    marks, branding = Marks(7), LimitMark()
    held: dict[int, bool] = {}

    def asked(pid: int, others: object) -> Adopted:
        held[pid] = comes_to(pid, "T")
        return Adopted(0, frozenset((marks.whose(pid) or 0,)))

    orphans = Orphans(asked)
    present = set(children())

    def first(orphan: Adopted) -> bool:
        return orphan.suspects == {1}

    def marked(task: int) -> subprocess.Popen[bytes]:
        branding.put(marks.add(task, b""))
        try:
            return subprocess.Popen(["sleep", "25"])
        finally:
            branding.take_off()

    with marked(1) as doomed, marked(2) as other, marked(1) as leader:
        try:
            ours = present | {leader.pid}
            assert orphans.catch(first, ours, hold=True)
            assert held == {doomed.pid: True, other.pid: True}
            assert doomed.wait(10) == -signal.SIGKILL
            orphans.reaped(doomed.pid)
            assert not orphans.catch(first, ours, hold=True), "nobody is asked twice"
            assert other.poll() is None
            assert comes_to(other.pid, "S"), "it goes on as if nothing had been"
            assert leader.poll() is None
        finally:
            for process in (other, leader):
                process.kill()


def comes_to(pid: int, state: str) -> bool:
    """As the kernel calls it: ``T`` is held, ``S`` sleeps."""
    for _ in range(5000):
        if f" {state} " in Path(f"/proc/{pid}/stat").read_text():
            return True
        time.sleep(0.001)
    return False


def children() -> list[int]:
    return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]
