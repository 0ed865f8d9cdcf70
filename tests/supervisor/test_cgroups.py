"""Control groups: where they are, what they tell of a process, how they end and are removed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenure.transports.supervisor import cgroups, processes
from tenure.transports.supervisor.cgroups import RELEASED, Enclosures, TaskGroups, own_group
from tenure.transports.supervisor.processes import Process, look_at
from tenure.transports.supervisor.program import TaskTable
from tests.supervisor.grouping import HOME, allowed, folder_of, folders_of, group_of
from tests.supervisor.hostile import _HEADLESS
from tests.supervisor.test_task_table import (
    Told,
    children,
    end,
    start,
)
from tests.supervisor.test_task_table import told as told

pytestmark = pytest.mark.slow


MOUNTS = b"""24 1 0:22 / /proc rw - proc proc rw
30 24 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
31 24 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
"""


@pytest.mark.parametrize(
    ("groups", "mounts", "home"),
    [
        (b"4:memory:/x\n0::/\n", MOUNTS, "/sys/fs/cgroup/unified"),
        (b"0::/user.slice/a b\n", MOUNTS, "/sys/fs/cgroup/unified/user.slice/a b"),
        (b"0::/pod/x\n", MOUNTS.replace(b"0:26 /", b"0:26 /pod"), "/sys/fs/cgroup/unified/x"),
        (b"0::/pod\n", MOUNTS.replace(b"0:26 /", b"0:26 /pod"), "/sys/fs/cgroup/unified"),
        (b"0::/podium\n", MOUNTS.replace(b"0:26 /", b"0:26 /pod"), None),
        (b"0::/other\n", MOUNTS.replace(b"0:26 /", b"0:26 /pod"), None),
        (b"0::/../outside\n", MOUNTS, None),
        (b"4:memory:/x\n", MOUNTS, None),
        (b"0::/\n", b"", None),
        (b"", b"", None),
    ],
)
def test_which_group_we_are_in(
    monkeypatch: pytest.MonkeyPatch, groups: bytes, mounts: bytes, home: str | None
) -> None:
    files = {b"/proc/self/cgroup": groups, b"/proc/self/mountinfo": mounts}
    monkeypatch.setattr(cgroups, "read", lambda path, most=0: files[path])
    assert own_group() == home


def mine() -> str:
    process = look_at(os.getpid())
    assert process is not None
    return f"tenure-{os.getpid()}-{process.start}"


def test_a_group_lives_as_long_as_its_task_is_killed(tmp_path: Path) -> None:
    enclosures = Enclosures(str(tmp_path))
    assert list(tmp_path.iterdir()) == [], "nobody is killed yet"
    enclosures.enclose(3, [])
    enclosures.enclose(4, [])
    assert {path.name for path in (tmp_path / mine()).iterdir()} == {"3", "4"}
    enclosures.open(3)
    assert {path.name for path in (tmp_path / mine()).iterdir()} == {"4"}
    enclosures.close()
    assert list(tmp_path.iterdir()) == []


def test_where_none_may_be_made_none_is_tried_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    enclosures = Enclosures(str(home / "file" / "below"))
    home.mkdir()
    (home / "file").touch()
    enclosures.enclose(1, [os.getpid()])
    (home / "file").unlink()
    enclosures.enclose(2, [os.getpid()])
    enclosures.kill(2)
    enclosures.open(2)
    enclosures.close()
    assert list(home.iterdir()) == []
    assert enclosures.inside(2) == []


@pytest.fixture
def groups() -> Iterator[TaskGroups]:
    before, groups = group_of(), TaskGroups(HOME)
    yield groups
    groups.close()
    assert group_of() == before
    assert folders_of(os.getpid()) == []


@pytest.fixture
def table(told: Told, groups: TaskGroups) -> Iterator[TaskTable]:
    table = TaskTable(told, token=7, groups=groups, enclosures=Enclosures(None))
    yield table
    for number in (1, 2):
        table.end(number, 0.0, 0.0)
    for leader in told.leaders & set(children()):
        os.kill(leader, signal.SIGKILL)
        os.waitpid(leader, 0)


def born(groups: TaskGroups, task: int, *argv: str) -> int:
    groups.enter(task)
    try:
        return os.posix_spawn(argv[0], argv, {}, setsid=True)
    finally:
        groups.leave()


# -- whose it is ----------------------------------------------------------------------------------


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
    table: TaskTable, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, leader = start(table)
    freezer = folder_of(group_of(leader)) / "cgroup.freeze"
    frozen: list[str] = []

    def in_vain(process: Process, number: int) -> bool:
        frozen.append(freezer.read_text().strip() if allowed() else "1")
        return True

    with monkeypatch.context() as patched:
        patched.setattr(processes, "send", in_vain)
        patched.setattr(processes, "KILL_TIMEOUT_S", 0.0)
        assert end(table, told, 1) == [leader]
    assert set(frozen) == {"1"}
    if allowed():
        assert freezer.read_text() == "0\n"


# -- what others made -----------------------------------------------------------------------------


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


# -- what others removed --------------------------------------------------------------------------


# -- while nobody asks for anything ---------------------------------------------------------------
