"""Enclosures come and go with what is killed, and leave nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

from tenure.transports.supervisor.census import look_at
from tenure.transports.supervisor.enclosures import Enclosures


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
    gone = [
        tmp_path / "tenure-1-999999999999" / "7" / "nested",
        tmp_path / "tenure-1-999999999999-tasks" / "8",
    ]
    kept = [
        tmp_path / mine() / "9",
        tmp_path / f"{mine()}-tasks" / "9",
        tmp_path / "tenure-backup",
        tmp_path / "tenure-1-x",
    ]
    for path in (*gone, *kept):
        path.mkdir(parents=True)
    Enclosures(str(tmp_path)).enclose(1, [])
    assert not list(tmp_path.glob("tenure-1-999999999999*"))
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
