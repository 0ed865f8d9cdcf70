"""What the group of a task tells of a process, and what is done with it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenure.transports.supervisor import census, cgroups, demise
from tenure.transports.supervisor.census import Process
from tenure.transports.supervisor.enclosures import Enclosures
from tenure.transports.supervisor.orphans import Orphans
from tenure.transports.supervisor.suspicion import RELEASED
from tenure.transports.supervisor.task_groups import TaskGroups
from tenure.transports.supervisor.wardship import Wardship
from tests.supervisor.grouping import HOME, allowed, folder_of, folders_of, group_of
from tests.supervisor.hostile import _HEADLESS
from tests.supervisor.test_wardship import (
    SECOND,
    Told,
    children,
    end,
    let_go,
    orphan,
    start,
)
from tests.supervisor.test_wardship import told as told

pytestmark = pytest.mark.slow


@pytest.fixture
def groups() -> Iterator[TaskGroups]:
    before, groups = group_of(), TaskGroups(HOME)
    yield groups
    groups.close()
    assert group_of() == before
    assert folders_of(os.getpid()) == []


@pytest.fixture
def wards(told: Told, groups: TaskGroups) -> Iterator[Wardship]:
    wards = Wardship(told, token=7, groups=groups, enclosures=Enclosures(None))
    yield wards
    for number in (1, 2):
        wards.end(number, 0.0, 0.0)
    for leader in told.leaders & set(children()):
        os.kill(leader, signal.SIGKILL)
        os.waitpid(leader, 0)


def born(groups: TaskGroups, task: int, *argv: str) -> int:
    groups.enter(task)
    try:
        return os.posix_spawn(argv[0], argv, {}, setsid=True)
    finally:
        groups.leave()


def put(pid: int, leader: int) -> None:
    """Where a process that the leader started would have been born."""
    if allowed():
        (folder_of(group_of(leader)) / "cgroup.procs").write_text(str(pid))


# -- whose it is ----------------------------------------------------------------------------------


def test_groups_are_made_where_they_are_allowed(groups: TaskGroups) -> None:
    assert groups.possible is allowed()


def test_an_orphan_in_the_group_of_a_task_is_that_tasks_and_nobody_is_in_doubt(
    wards: Wardship, told: Told
) -> None:
    _, leader = start(wards, 1)
    start(wards, 2)
    with orphan() as daemon:
        put(daemon, leader)
        assert end(wards, told, 2) == ([] if allowed() else [daemon])
        assert daemon in children()
        assert end(wards, told, 1) == []
        assert daemon not in children()


@pytest.mark.parametrize("why", ["canceled", "untrusted", "runner gone"])
def test_what_is_in_the_group_of_a_released_task_is_nobodys_to_end(
    wards: Wardship, told: Told, why: str
) -> None:
    """Also where nobody could be told of a doubt: there is none."""
    first = start(wards, 1)
    begun, _ = start(wards, 2, lasts=SECOND)
    with orphan() as daemon:
        put(daemon, first.leader)
        let_go(wards, 1, first)
        wards.tidy()
        if why == "runner gone":
            wards.end_all(0.0)
        elif why == "untrusted":
            wards.check_trust(0.0, begun + SECOND)
        assert allowed() is (end(wards, told, 2) == [] and daemon in children())


def test_what_is_in_no_group_of_ours_is_judged_as_ever(wards: Wardship, told: Told) -> None:
    start(wards, 1)
    start(wards, 2)
    with orphan() as daemon:
        assert end(wards, told, 1) == [daemon]
        assert end(wards, told, 2) == []
        assert daemon not in children()


def test_the_dead_tell_too_also_when_their_group_is_removed(groups: TaskGroups) -> None:
    pid = born(groups, 1, "/bin/true")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert groups.whose(pid) == (1 if allowed() else None)
    groups.release(1)
    groups.tidy(2)
    assert group_of(pid).endswith("/1 (deleted)") is allowed()
    assert groups.whose(pid) == (RELEASED if allowed() else None)
    os.waitpid(pid, 0)


def test_threads_are_traced_to_their_process(groups: TaskGroups) -> None:
    """Its main thread has ended, so its number is not listed."""
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    code = _HEADLESS.replace("os.write(1,", f"os.write({writable},")
    pid = born(groups, 1, sys.executable, "-I", "-S", "-c", code)
    os.read(readable, 10)
    os.close(readable)
    os.close(writable)
    try:
        while " Z " not in Path(f"/proc/{pid}/stat").read_text():
            os.sched_yield()
        assert groups.inside(1, {pid}) == ([pid] if allowed() else [])
        assert groups.inhabited(1) is allowed()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert not groups.inhabited(1)


def test_long_lists_are_read_to_their_end(tmp_path: Path) -> None:
    numbers = list(range(1, 50_000))
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "cgroup.threads").write_text("\n".join(map(str, numbers)))
    assert cgroups.numbers_in(str(tmp_path), "cgroup.threads") == numbers


# -- which group it is ----------------------------------------------------------------------------


def test_a_task_that_was_not_expected_has_its_own_too(groups: TaskGroups) -> None:
    groups.tidy(5)
    pid = born(groups, 9, "/bin/true")
    assert group_of(pid).endswith("-tasks/9") is allowed()
    os.waitpid(pid, 0)
    groups.release(9)
    groups.tidy(10)
    left = {path.name for each in folders_of(os.getpid()) for path in each.iterdir()}
    assert {name for name in left if name.isdecimal()} == ({"10"} if allowed() else set())


def test_a_group_that_cannot_be_left_tells_nothing_and_is_not_frozen(
    groups: TaskGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We are in it ourselves, and so is whatever is started next."""
    if groups.possible:
        nowhere = os.open("/dev/null", os.O_RDONLY)
        with monkeypatch.context() as patched:
            patched.setattr(groups, "_resting_place", nowhere)
            pids = [born(groups, task, "/bin/true") for task in (1, 2)]
            groups.freeze(1)
            assert [groups.whose(pid) for pid in pids] == [None, None]
        os.close(nowhere)
    else:
        pids = [born(groups, task, "/bin/true") for task in (1, 2)]
    pids.append(born(groups, 3, "/bin/true"))
    assert [groups.whose(pid) for pid in pids] == [None, None, 3 if allowed() else None]
    for pid in pids:
        os.waitpid(pid, 0)


def test_where_threads_may_not_move_there_are_none_from_the_beginning() -> None:
    """Below a threaded group and not threaded itself, it can hold nobody."""
    above = Path(f"{HOME}/tests-{os.getpid()}-above" if allowed() else "/proc")
    home = above / "below" if allowed() else above
    if allowed():
        above.mkdir()
        (above / "cgroup.type").write_text("threaded")
        home.mkdir()
    try:
        assert not TaskGroups(str(home)).possible
        assert not list(home.glob("tenure-*"))
    finally:
        for folder in (home, above) if allowed() else ():
            folder.rmdir()


def test_where_moving_would_hold_up_the_machine_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release="5.4.0-generic"))
    assert not TaskGroups(HOME).possible
    assert folders_of(os.getpid()) == []


# -- how it ends ----------------------------------------------------------------------------------


def test_everything_stands_still_before_anybody_is_killed_and_goes_on_if_it_cannot_be(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, leader = start(wards)
    freezer = folder_of(group_of(leader)) / "cgroup.freeze"
    frozen: list[str] = []

    def in_vain(process: Process, number: int) -> bool:
        frozen.append(freezer.read_text().strip() if allowed() else "1")
        return True

    with monkeypatch.context() as patched:
        patched.setattr(census, "send", in_vain)
        patched.setattr(demise, "AFTER_KILL", 0.0)
        assert end(wards, told, 1) == [leader]
    assert set(frozen) == {"1"}
    if allowed():
        assert freezer.read_text() == "0\n"


def test_nobody_stands_still_during_the_grace(wards: Wardship, told: Told) -> None:
    _, leader = start(wards)
    wards.end(1, 5.0, 0.0)
    wards.pursue(0.0)
    if allowed():
        assert (folder_of(group_of(leader)) / "cgroup.freeze").read_text() == "0\n"


def test_of_a_task_that_ended_by_itself_nobody_stands_still(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, leader = start(wards)
    freezer, send = folder_of(group_of(leader)) / "cgroup.freeze", census.send
    frozen: list[str] = []

    def noted(process: Process, number: int) -> bool:
        frozen.append(freezer.read_text().strip() if allowed() else "0")
        return send(process, number)

    monkeypatch.setattr(census, "send", noted)
    with orphan() as daemon:
        put(daemon, leader)
        assert end(wards, told, 1, only_group=True) == []
        assert daemon in children()
    assert set(frozen) == {"0"}


def test_who_is_in_the_group_ends_with_the_task_whoever_his_parent_is(
    wards: Wardship, told: Told
) -> None:
    """As somebody who was let in from outside."""
    readable, writable = os.pipe()
    script = ["sh", "-c", "sleep 25 & echo $!; wait"]
    outside = os.posix_spawn(
        "/bin/sh", script, {}, file_actions=[(os.POSIX_SPAWN_DUP2, writable, 1)]
    )
    inside = int(os.read(readable, 20))
    os.close(readable)
    os.close(writable)
    _, leader = start(wards, later=SECOND)
    put(inside, leader)
    assert end(wards, told, 1) == []
    found = census.look_at(inside)
    lives = found is not None and found.alive
    if lives:
        os.kill(inside, signal.SIGKILL)
    if outside in children():  # he goes on, or at once to his end: there is nobody to wait for
        os.waitpid(outside, 0)
    assert lives is not allowed()


def test_a_group_that_is_not_empty_is_not_called_gone_whoever_is_not_shown(
    wards: Wardship, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where ``/proc`` hides the processes of others, and this one is no child of ours."""
    _, leader = start(wards)
    with orphan() as daemon:
        put(daemon, leader)
        everybody = census.everybody
        monkeypatch.setattr(
            census, "everybody", lambda: {p: it for p, it in everybody().items() if p != daemon}
        )
        monkeypatch.setattr(Orphans, "_listed", lambda orphans: b"")
        monkeypatch.setattr(cgroups, "_process_of", lambda thread: 0)
        assert (end(wards, told, 1) == []) is not allowed()
