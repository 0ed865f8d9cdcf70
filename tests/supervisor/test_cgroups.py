"""Enclosures come and go with what is killed, and leave nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.transports.supervisor import cgroups
from tenure.transports.supervisor.census import look_at
from tenure.transports.supervisor.cgroups import Enclosures, own_group

MOUNTS = b"""24 1 0:22 / /proc rw - proc proc rw
30 24 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
31 24 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
"""


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


def test_what_killed_supervisors_left_is_removed(tmp_path: Path) -> None:
    gone = tmp_path / "tenure-1-999999999999" / "7" / "nested"
    kept = [tmp_path / mine() / "9", tmp_path / "tenure-backup", tmp_path / "tenure-1-x"]
    for path in (gone, *kept):
        path.mkdir(parents=True)
    Enclosures(str(tmp_path)).enclose(1, [])
    assert not (tmp_path / "tenure-1-999999999999").exists()
    assert all(path.exists() for path in kept)


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
