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

from tenure.transports.supervisor import census, demise, frames
from tenure.transports.supervisor.enclosures import Enclosures
from tenure.transports.supervisor.frames import Spawn, Splitter
from tenure.transports.supervisor.lineage import Lineage, Seen
from tenure.transports.supervisor.marks import Branding, Marks
from tenure.transports.supervisor.orphans import Orphans
from tenure.transports.supervisor.slack import Slack
from tenure.transports.supervisor.suspicion import Adopted
from tenure.transports.supervisor.task_groups import TaskGroups
from tenure.transports.supervisor.wardship import Wardship

pytestmark = pytest.mark.slow

SECOND = 1_000_000_000


class Told:
    """What a wardship tells its runner."""

    def __init__(self) -> None:
        self.data = b""

    def __call__(self, frame: bytes) -> None:
        self.data += frame

    @property
    def answers(self) -> list[tuple[int, int, bytes]]:
        return Splitter(frames.MOST_ANSWERED).split(self.data)

    @property
    def kinds(self) -> list[int]:
        return [kind for kind, _, _ in self.answers]

    @property
    def leaders(self) -> set[int]:
        return {frames.read_number(body) for kind, _, body in self.answers if kind == frames.LEADER}

    def left_of(self, task: int) -> list[int] | None:
        """What was left when it ended, once it has."""
        for kind, number, body in self.answers:
            if number == task and kind in (frames.GONE, frames.LEFT):
                return frames.read_numbers(body) if kind == frames.LEFT else []
        return None


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Where a supervisor stands; and back again."""
    monkeypatch.chdir("/")
    return Told()


@pytest.fixture
def wards(told: Told) -> Iterator[Wardship]:
    wards = Wardship(told, token=7, groups=TaskGroups(None), enclosures=Enclosures(None))
    yield wards
    for number in (1, 2):
        wards.end(number, 0.0, 0.0)
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


def start(wards: Wardship, number: int = 1, *, lasts: int = 0, later: int = 0) -> Started:
    """Now, or ``later``; trusted as long as it ``lasts``."""
    begun, before = boot_time() + later, set(children())
    with Path("/dev/null").open("wb") as nowhere:
        until = begun + lasts if lasts else 0
        wards.spawn(number, order(until), [nowhere.fileno()] * 2, begun)
    [leader] = set(children()) - before
    return Started(begun, leader)


def let_go(wards: Wardship, number: int, task: Started) -> None:
    """It ends by itself, and is released."""
    os.kill(task.leader, signal.SIGKILL)
    while task.leader in children():
        wards.reap()
    wards.release(number)


def end(
    wards: Wardship, told: Told, number: int, *, grace: float = 0.0, only_group: bool = False
) -> list[int] | None:
    """What is left of it, once that is known."""
    wards.end(number, grace, 0.0, only_group=only_group)
    for moment in range(1000):
        wards.reap()
        wards.pursue(moment / 100)
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
    wards: Wardship,
) -> None:
    assert wards.until_next_look(0.0, 0) == inf
    begun, _ = start(wards, lasts=SECOND // 4)
    assert wards.until_next_look(0.0, begun) == 0.25
    wards.trust(b"run", begun + 100 * SECOND, 5.0)
    wards.check_trust(0.0, begun + SECOND // 4)
    assert wards.until_next_look(0.0, begun + SECOND // 4) == 1.0
    wards.trust(b"run", 0, 5.0)
    wards.check_trust(0.0, begun + 100 * SECOND)
    assert wards.until_next_look(0.0, begun + 100 * SECOND) == inf


def test_a_runner_that_is_gone_is_still_held_to_its_trust(wards: Wardship, told: Told) -> None:
    begun, _ = start(wards, lasts=SECOND)
    wards.end_all(0.0)
    wards.trust(b"run", begun + SECOND, 0.0)
    wards.check_trust(0.5, begun + SECOND)
    wards.pursue(0.5)
    assert frames.UNTRUSTED in told.kinds
    assert wards.until_next_look(0.5, begun + SECOND) == 0, "no grace is left"


def test_what_it_cannot_see_it_does_not_call_gone(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where ``/proc`` hides the processes of others."""
    start(wards)
    wards.end(1, 0.0, 0.0)
    monkeypatch.setattr(census, "everybody", dict)
    monkeypatch.setattr(census, "look_at", lambda pid: None)
    for moment in (0.0, 0.1, demise.AFTER_KILL):
        wards.pursue(moment)
        assert frames.GONE not in told.kinds
    wards.pursue(demise.AFTER_KILL + 0.2)
    assert told.kinds[-1] == frames.LEFT


@pytest.mark.parametrize("only_group", [False, True])
def test_an_orphan_that_comes_after_the_look_is_caught_with_its_task(
    wards: Wardship, monkeypatch: pytest.MonkeyPatch, only_group: bool
) -> None:
    """As in a relay, whose runners are gone before all processes have been looked at. What ended by
    itself is not pursued like that."""
    runners: list[int] = []
    branding, look = Branding(), Lineage.look

    def too_early(lineage: Lineage, ending: set[int], unheard: set[int]) -> Seen:
        seen = look(lineage, ending, unheard)
        branding.put(Marks(7).add(1, b""))
        runners.append(os.posix_spawn("/bin/sleep", ["sleep", "25"], {}))
        branding.take_off()
        return seen

    start(wards)
    with monkeypatch.context() as patched:
        patched.setattr(Lineage, "look", too_early)
        patched.setattr(census, "everybody", dict)
        patched.setattr(census, "look_at", lambda pid: None)
        wards.end(1, 0.0, 0.0, only_group=only_group)
        wards.pursue(0.0)
    [runner] = runners
    ended_by = int(signal.SIGKILL)
    if runner in children():
        os.kill(runner, signal.SIGUSR1)  # of two signals the first one counts
        ended_by = os.WTERMSIG(os.waitpid(runner, 0)[1])
    assert ended_by == (signal.SIGUSR1 if only_group else signal.SIGKILL)


def test_with_nothing_left_to_look_with_it_looks_again_later(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> dict[int, census.Process]:
        raise OSError(24, "Too many open files")

    start(wards)
    wards.end(1, 0.0, 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(census, "everybody", none_left)
        wards.pursue(0.0)
        assert wards.until_next_look(0.0, 0) > 0
    assert frames.GONE not in told.kinds


def test_a_name_no_process_can_have_refuses_the_task_only(told: Told) -> None:
    wards = Wardship(told, token=7, groups=TaskGroups(None), enclosures=Enclosures(None))
    wrong = order()
    wrong.env = {b"A=B": b""}
    wards.spawn(1, wrong, [], boot=0)
    assert told.kinds == [frames.REFUSED]
    assert wards.empty


# -- orphans without marks ------------------------------------------------------------------------


def test_what_only_one_task_can_have_started_ends_with_it(wards: Wardship, told: Told) -> None:
    start(wards)
    with orphan() as daemon:
        assert end(wards, told, 1) == []
        assert daemon not in children()


def test_what_was_there_before_a_task_is_not_its_own(wards: Wardship, told: Told) -> None:
    with orphan() as daemon:
        start(wards, later=SECOND)
        assert end(wards, told, 1) == []
        assert daemon in children()


def test_what_two_may_have_started_is_left_and_named_and_ends_with_the_other(
    wards: Wardship, told: Told
) -> None:
    start(wards, 1)
    start(wards, 2)
    with orphan() as daemon:
        assert end(wards, told, 1) == [daemon]
        wards.release(1)
        assert daemon in children()
        assert end(wards, told, 2) == []
        assert daemon not in children()


def test_what_two_may_have_started_ends_when_both_end(wards: Wardship, told: Told) -> None:
    start(wards, 1)
    start(wards, 2)
    with orphan() as daemon:
        wards.end(2, 0.0, 0.0)
        assert end(wards, told, 1) == []
        assert daemon not in children()


@pytest.mark.parametrize("why", ["canceled", "untrusted", "runner gone"])
def test_what_an_ended_task_may_have_left_stays_unless_nobody_could_be_told(
    wards: Wardship, told: Told, why: str
) -> None:
    first = start(wards, 1)
    begun, _ = start(wards, 2, lasts=SECOND)
    with orphan() as daemon:
        let_go(wards, 1, first)
        if why == "runner gone":
            wards.end_all(0.0)
        elif why == "untrusted":
            wards.check_trust(0.0, begun + SECOND)
        assert end(wards, told, 2) == ([daemon] if why == "canceled" else [])
        assert (daemon in children()) is (why == "canceled")


def test_a_daemon_of_an_ended_task_is_not_suspected_of_the_next(
    wards: Wardship, told: Told
) -> None:
    first = start(wards, 1)
    with orphan() as daemon:
        let_go(wards, 1, first)
        start(wards, 2)
        wards.end_all(0.0)
        assert end(wards, told, 2) == []
        assert daemon in children()


def test_a_task_that_is_gone_is_not_suspected_of_what_comes_later(
    wards: Wardship, told: Told
) -> None:
    start(wards, 1)
    start(wards, 2)
    assert end(wards, told, 1) == []
    with orphan() as daemon:
        wards.release(1)
        assert end(wards, told, 2) == []
        assert daemon not in children()


def test_what_left_the_group_of_a_task_that_ended_by_itself_lives_on(
    wards: Wardship, told: Told
) -> None:
    start(wards)
    with orphan() as daemon:
        assert end(wards, told, 1, only_group=True) == []
        assert daemon in children()


def test_timers_tell_whose_it_is_where_that_may_be_read(wards: Wardship, told: Told) -> None:
    start(wards, 1)
    start(wards, 2)
    slack = Slack()
    slack.put(1)
    with orphan() as daemon:
        slack.take_off()
        readable = slack.whose(daemon) == 1
        assert end(wards, told, 2) == ([] if readable else [daemon])
        assert daemon in children()
        assert end(wards, told, 1) == []
        assert daemon not in children()


def test_an_orphan_that_is_not_shown_is_not_called_gone(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(wards)
    with orphan() as daemon:
        everybody, look_at = census.everybody, census.look_at
        monkeypatch.setattr(
            census, "everybody", lambda: {p: it for p, it in everybody().items() if p != daemon}
        )
        monkeypatch.setattr(census, "look_at", lambda p: look_at(p) if p != daemon else None)
        assert end(wards, told, 1) != []


def test_an_orphan_whose_parent_was_there_a_moment_ago_is_found(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was counted below its parent, and came to us before that was counted."""
    everybody = census.everybody

    def a_moment_ago() -> dict[int, census.Process]:
        found = everybody()
        if daemon in found:
            found[daemon].parent = 1 << 30
        return found

    start(wards)
    with orphan() as daemon:
        monkeypatch.setattr(census, "everybody", a_moment_ago)
        assert end(wards, told, 1, grace=5.0) == []
        assert daemon not in children()


def test_where_children_are_not_listed_ended_tasks_stay_under_suspicion(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(path: str, flags: int) -> int:
        raise FileNotFoundError(2, path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", none)
        wards = Wardship(told, token=7, groups=TaskGroups(None), enclosures=Enclosures(None))
    let_go(wards, 1, start(wards, 1))
    start(wards, 2)
    with orphan() as daemon:
        assert end(wards, told, 2) == [daemon]


def test_with_nothing_left_to_look_with_a_released_task_stays_under_suspicion(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(pid: int) -> None:
        raise OSError(24, "Too many open files")

    first = start(wards, 1)
    start(wards, 2)
    with orphan() as daemon:
        with monkeypatch.context() as patched:
            patched.setattr(census, "look_at", none_left)
            let_go(wards, 1, first)
        assert end(wards, told, 2) == [daemon]
        assert daemon in children()


# -- orphans --------------------------------------------------------------------------------------


def test_new_children_are_held_and_asked() -> None:
    """It cannot fork and be gone while somebody finds out whose it is."""
    marks, branding = Marks(7), Branding()
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
