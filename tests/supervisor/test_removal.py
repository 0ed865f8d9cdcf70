"""Which control groups are removed, and when: never one that somebody may still need."""

from __future__ import annotations

import asyncio
import os
import signal
from math import inf
from pathlib import Path

import pytest

from tenure.transports.local import LocalTransport
from tenure.transports.supervisor import cgroups, task_groups
from tenure.transports.supervisor.census import look_at
from tenure.transports.supervisor.task_groups import TaskGroups
from tenure.transports.supervisor.wardship import Wardship
from tests.supervisor.grouping import HOME, allowed, folder_of, folders_of, group_of
from tests.supervisor.supervising import supervisors
from tests.supervisor.test_membership import born, put
from tests.supervisor.test_membership import groups as groups
from tests.supervisor.test_membership import wards as wards
from tests.supervisor.test_task_groups import until_removed, where
from tests.supervisor.test_wardship import children, let_go, orphan, start
from tests.supervisor.test_wardship import told as told
from tests.transports.keeping import HERE, Kept, runs, sh

pytestmark = pytest.mark.slow

WITH_A_GROUP = f"""
    mkdir {HOME}/$(sed -n s/^0:://p /proc/self/cgroup)/mine
    setsid sleep 25 >/dev/null 2>&1 & echo $!"""


def mine() -> str:
    process = look_at(os.getpid())
    assert process is not None
    return f"tenure-{os.getpid()}-{process.start}"


# -- what others made -----------------------------------------------------------------------------


async def test_what_a_daemon_made_in_the_group_of_its_task_stays_as_long_as_it_lives(
    transport: LocalTransport,
) -> None:
    if not allowed():
        assert await where(transport) == group_of()
        return
    kept = Kept()
    await transport.run(HERE, sh(WITH_A_GROUP), kept)
    [daemon] = await kept.numbers(1)
    [supervisor] = supervisors()
    theirs = folder_of(group_of(daemon))
    for _ in range(5):  # turns of the supervisor, in which it tidies up
        await where(transport)
        assert (theirs / "mine").is_dir()
    await transport.close()
    assert (theirs / "mine").is_dir(), "the supervisor went"
    assert [path.name for path in theirs.parent.iterdir() if path.is_dir()] == [theirs.name]
    await where(transport)
    assert (theirs / "mine").is_dir(), "the next one came"
    await transport.close()
    os.kill(daemon, signal.SIGKILL)
    while runs(daemon):
        await asyncio.sleep(0.01)
    await where(transport)
    assert folders_of(supervisor) == []


async def test_it_goes_with_the_daemon(transport: LocalTransport) -> None:
    if not allowed():
        assert await where(transport) == group_of()
        return
    kept = Kept()
    await transport.run(HERE, sh(WITH_A_GROUP), kept)
    [daemon] = await kept.numbers(1)
    theirs = folder_of(group_of(daemon))
    await where(transport)
    os.kill(daemon, signal.SIGKILL)
    await until_removed(theirs)


def test_a_supervisor_that_goes_removes_all_but_what_somebody_is_in() -> None:
    groups = TaskGroups(HOME)
    pids = [born(groups, task, "/bin/sleep", "25") for task in (1, 2)]
    folders = folders_of(os.getpid())
    groups.release(2)
    os.kill(pids[1], signal.SIGKILL)
    os.waitpid(pids[1], 0)
    groups.close()
    left = [path.name for folder in folders for path in folder.iterdir() if path.is_dir()]
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)
    for folder in folders:
        cgroups.clear(str(folder))
    assert left == (["1"] if allowed() else [])
    assert folders_of(os.getpid()) == []


@pytest.mark.parametrize("maker", ["tenure-1-999999999999-tasks", "tenure-backup", "tenure-1-x"])
def test_what_nobody_is_in_goes_whoever_made_it(tmp_path: Path, maker: str) -> None:
    (tmp_path / "5" / maker / "3").mkdir(parents=True)
    assert cgroups.remove(str(tmp_path / "5"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["", "-tasks"])
def test_the_groups_of_a_supervisor_that_lives_stay_also_if_nobody_is_in_them(
    tmp_path: Path, what: str
) -> None:
    made = [tmp_path / "5" / "deeper" / f"{mine()}{what}" / "3", tmp_path / "5" / "other"]
    for path in made:
        path.mkdir(parents=True)
    assert not cgroups.remove(str(tmp_path / "5"))
    assert all(map(Path.is_dir, made))


def test_what_killed_supervisors_left_goes_but_for_what_lives_in_it(tmp_path: Path) -> None:
    left = tmp_path / "tenure-1-999999999999-tasks"
    (left / "4").mkdir(parents=True)
    (left / "5" / mine() / "3").mkdir(parents=True)
    cgroups.sweep(str(tmp_path))
    assert [path.name for path in left.iterdir()] == ["5"]
    assert (left / "5" / mine() / "3").is_dir()


def test_with_nothing_left_to_look_with_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(path: bytes, most: int = 0) -> bytes:
        raise OSError(24, os.strerror(24))

    (tmp_path / "5" / "mine").mkdir(parents=True)
    monkeypatch.setattr(cgroups, "read", none_left)
    assert not cgroups.remove(str(tmp_path / "5"))
    assert (tmp_path / "5" / "mine").is_dir()


# -- what others removed --------------------------------------------------------------------------


def test_a_supervisor_whose_folder_was_removed_makes_it_anew(groups: TaskGroups) -> None:
    for task in (1, 2):
        for folder in folders_of(os.getpid()):
            assert cgroups.remove(str(folder))
        pid = born(groups, task, "/bin/sleep", "25")
        try:
            assert group_of(pid).endswith(f"-tasks/{task}") is allowed()
            assert groups.whose(pid) == (task if allowed() else None)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        groups.release(task)
        groups.tidy(task)
        groups.leave()  # nobody could remove where it is


def test_with_nothing_left_to_look_with_it_is_made_anew_later(
    groups: TaskGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(path: bytes, most: int = 0) -> bytes:
        raise OSError(24, os.strerror(24))

    for folder in folders_of(os.getpid()):
        assert cgroups.remove(str(folder))
    with monkeypatch.context() as patched:
        patched.setattr(task_groups, "read", none_left)
        groups.tidy(1)
        assert folders_of(os.getpid()) == []
    groups.tidy(1)
    assert bool(folders_of(os.getpid())) is allowed()


# -- while nobody asks for anything ---------------------------------------------------------------


async def test_an_idle_supervisor_removes_all_that_is_empty(transport: LocalTransport) -> None:
    over = await asyncio.gather(*(where(transport) for _ in range(60)))
    if allowed():
        await until_removed(*map(folder_of, over))


async def test_an_idle_supervisor_removes_what_daemons_leave_that_end_together(
    transport: LocalTransport,
) -> None:
    kept = Kept()
    script = sh("setsid sleep 25 >/dev/null 2>&1 & echo $!")
    await asyncio.gather(*(transport.run(HERE, script, kept) for _ in range(30)))
    daemons = await kept.numbers(30)
    theirs = [folder_of(group_of(daemon)) for daemon in daemons]
    await where(transport)
    for daemon in daemons:
        os.kill(daemon, signal.SIGKILL)
    if allowed():
        await until_removed(*theirs)


def test_it_has_turns_until_it_is_tidy_and_none_afterwards(wards: Wardship) -> None:
    tasks = range(1, 41)
    for number in tasks:
        let_go(wards, number, start(wards, number))
    wards.tidy()
    turns, most = 1, len(tasks)
    while wards.until_next_look(0.0, 0) < inf and turns < most:
        wards.tidy()
        turns += 1
    assert turns < most
    left = {path.name for folder in folders_of(os.getpid()) for path in folder.glob("*/")}
    assert left == ({"41"} if allowed() else set())
    assert (turns > 2) is allowed(), "a task that comes meanwhile does not wait for all of it"


def test_a_daemon_that_goes_on_keeps_nobody_awake(wards: Wardship) -> None:
    task = start(wards, 1)
    with orphan() as daemon, orphan() as other:
        put(daemon, task.leader)
        let_go(wards, 1, task)
        for _ in range(2):  # in the first turn after a start nothing is removed
            wards.tidy()
        os.kill(other, signal.SIGKILL)
        while other in children():
            wards.reap()  # that somebody ended is a reason to look once
        for _ in range(5):
            wards.tidy()
        assert wards.until_next_look(0.0, 0) == inf
