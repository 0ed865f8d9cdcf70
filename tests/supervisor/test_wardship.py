"""The supervisor's inside, where its outside cannot show it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from tenure.transports.supervisor import census, demise, frames
from tenure.transports.supervisor.cgroups import Enclosures
from tenure.transports.supervisor.frames import Spawn, Splitter
from tenure.transports.supervisor.marks import Branding, Marks
from tenure.transports.supervisor.orphans import Orphans
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
    def kinds(self) -> list[int]:
        return [kind for kind, _, _ in Splitter(frames.MOST_ANSWERED).split(self.data)]

    @property
    def leader(self) -> int:
        answers = Splitter(frames.MOST_ANSWERED).split(self.data)
        return next(frames.read_number(body) for kind, _, body in answers if kind == frames.LEADER)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Where a supervisor stands; and back again."""
    monkeypatch.chdir("/")
    return Told()


@pytest.fixture
def wards(told: Told) -> Iterator[Wardship]:
    wards = Wardship(told, token=7, enclosures=Enclosures(None))
    yield wards
    wards.end(1, 0.0, 0.0)
    os.kill(told.leader, signal.SIGKILL)
    os.waitpid(told.leader, 0)


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


def start(wards: Wardship, until: int = 0) -> None:
    with Path("/dev/null").open("wb") as nowhere:
        wards.spawn(1, order(until), [nowhere.fileno()] * 2, boot=0)


def test_it_sleeps_until_the_end_of_trust_but_never_long_by_the_other_clock(
    wards: Wardship,
) -> None:
    assert wards.until_next_look(0.0, 0) == inf
    start(wards, until=SECOND // 4)
    assert wards.until_next_look(0.0, 0) == 0.25
    wards.trust(b"run", 100 * SECOND, 5.0)
    wards.check_trust(0.0, SECOND // 4)
    assert wards.until_next_look(0.0, SECOND // 4) == 1.0
    wards.trust(b"run", 0, 5.0)
    wards.check_trust(0.0, 100 * SECOND)
    assert wards.until_next_look(0.0, 100 * SECOND) == inf


def test_a_runner_that_is_gone_is_still_held_to_its_trust(wards: Wardship, told: Told) -> None:
    start(wards, until=SECOND)
    wards.end_all(0.0)
    wards.trust(b"run", SECOND, 0.0)
    wards.check_trust(0.5, SECOND)
    wards.pursue(0.5)
    assert frames.UNTRUSTED in told.kinds
    assert wards.until_next_look(0.5, SECOND) == 0, "no grace is left"


def test_what_it_cannot_see_it_does_not_call_gone(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where ``/proc`` hides the processes of others."""
    start(wards)
    wards.end(1, 0.0, 0.0)
    monkeypatch.setattr(census, "everybody", dict)
    for moment in (0.0, 0.1, demise.AFTER_KILL):
        wards.pursue(moment)
        assert frames.GONE not in told.kinds
    wards.pursue(demise.AFTER_KILL + 0.2)
    assert told.kinds[-1] == frames.LEFT


def test_an_orphan_nobody_saw_is_caught_with_its_task(
    wards: Wardship, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a relay, whose runners are gone before all processes have been looked at."""
    start(wards)
    branding = Branding()
    branding.put(Marks(7).add(1, b""))
    orphan = os.posix_spawn("/bin/sleep", ["sleep", "25"], {})
    branding.take_off()
    monkeypatch.setattr(census, "everybody", dict)
    wards.end(1, 0.0, 0.0)
    wards.pursue(0.0)
    for _ in range(500):
        wards.reap()
        if census.look_at(orphan) is None:
            return
        time.sleep(0.01)
    pytest.fail("it lives on")


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
    wards = Wardship(told, token=7, enclosures=Enclosures(None))
    wrong = order()
    wrong.env = {b"A=B": b""}
    wards.spawn(1, wrong, [], boot=0)
    assert told.kinds == [frames.REFUSED]
    assert wards.empty


# -- orphans --------------------------------------------------------------------------------------


def test_new_children_are_held_and_asked() -> None:
    marks, branding = Marks(7), Branding()
    orphans = Orphans(marks.whose)
    present = set(children())
    orphans.catch(set(), present, hold=False)

    def marked(task: int) -> subprocess.Popen[bytes]:
        branding.put(marks.add(task, b""))
        try:
            return subprocess.Popen(["sleep", "25"])
        finally:
            branding.take_off()

    with marked(1) as doomed, marked(2) as other, marked(1) as leader:
        try:
            ours = present | {leader.pid}
            assert orphans.catch({1}, ours, hold=True)
            assert doomed.wait(10) == -signal.SIGKILL
            orphans.reaped(doomed.pid)
            assert not orphans.catch({1}, ours, hold=True), "nobody is asked twice"
            assert other.poll() is None
            while " S " not in Path(f"/proc/{other.pid}/stat").read_text():
                time.sleep(0.001)  # it goes on as if nothing had been
            assert leader.poll() is None
        finally:
            for process in (other, leader):
                process.kill()


def children() -> list[int]:
    return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]
