"""Who is named for a lock: whoever has it, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.stores import lock_holder
from tenure.stores.lock_holder import readers_of, who_holds

OPENS = """
import sys
files = [open(name) for name in sys.argv[1:]]
print("open", flush=True)
sys.stdin.read()
"""
Opening = Callable[..., int]
ANOTHER_DEVICE = "fff:7ffff"
PART = range(100, 110)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch()
    return path


@pytest.fixture
def process() -> Iterator[Opening]:
    """The id of one that has these files open."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*paths: Path) -> int:
        one = subprocess.Popen(
            [sys.executable, "-c", OPENS, *map(str, paths)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(one)
        assert one.stdout is not None
        assert one.stdout.readline() == b"open\n"
        return one.pid

    yield start
    for one in started:
        one.communicate()


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the system tells of locks: it names a file by its device and its number there."""
    locks = tmp_path / "locks"
    monkeypatch.setattr(lock_holder, "_LOCKS", locks)

    def tell(
        path: Path,
        *pids: int,
        device: str | None = None,
        kind: str = "WRITE",
        by: str = "POSIX",
        part: str = "0 EOF",
    ) -> None:
        seen = path.stat()
        own = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
        lines = [
            f"{number}: {by}  ADVISORY  {kind} {pid} {device or own}:{seen.st_ino} {part}\n"
            for number, pid in enumerate(pids)
        ]
        locks.write_text("".join(lines))

    return tell


def test_process_with_a_lock_on_the_file_is_named(
    file: Path, process: Opening, told: Callable[..., None]
) -> None:
    pid = process()
    told(file, pid, kind="READ")
    assert f"process {pid};" in who_holds(file, 5.0)
    assert readers_of(file, PART) == [pid]


def test_file_of_the_same_number_on_another_disk_is_another_file(
    file: Path, process: Opening, told: Callable[..., None]
) -> None:
    told(file, process(), device=ANOTHER_DEVICE, kind="READ")
    assert "look for a stopped or hung process" in who_holds(file, 5.0)
    assert readers_of(file, PART) == []


def test_where_devices_have_two_names_whoever_has_the_file_open_is_named(
    file: Path, process: Opening, told: Callable[..., None]
) -> None:
    """As on btrfs, and on overlays."""
    innocent, holder = process(), process(file)
    told(file, innocent, holder, device=ANOTHER_DEVICE, kind="READ")
    assert f"process {holder};" in who_holds(file, 5.0)
    assert readers_of(file, PART) == [holder]


def test_process_that_is_gone_has_nothing_open(
    file: Path, process: Opening, told: Callable[..., None]
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    told(file, gone.pid, device=ANOTHER_DEVICE)
    assert "look for a stopped or hung process" in who_holds(file, 5.0)


def test_this_process_is_called_that_and_others_are_named_before_it(
    file: Path, process: Opening, told: Callable[..., None]
) -> None:
    other = process()
    told(file, os.getpid(), kind="READ")
    assert who_holds(file, 5.0).startswith(f"this process has held {file} for 5 s")
    assert "kill" not in who_holds(file, 5.0)
    assert readers_of(file, PART) == [os.getpid()]
    told(file, os.getpid(), other)
    assert f"process {other};" in who_holds(file, 5.0)


def test_lock_of_the_whole_file_is_in_nobodys_way_who_locks_bytes(
    file: Path, process: Opening, told: Callable[..., None]
) -> None:
    pid = process()
    for kind in ("FLOCK", "LEASE", "DELEG"):
        told(file, pid, kind="READ", by=kind)
        assert readers_of(file, PART) == []
        told(file, pid, kind="WRITE", by=kind)
        assert "look for a stopped or hung process" in who_holds(file, 5.0, (file, 100))


@pytest.mark.parametrize(
    ("locked", "reads"),
    [("0 99", False), ("0 100", True), ("105 105", True), ("109 EOF", True), ("110 EOF", False)],
)
def test_only_who_locks_some_of_those_bytes_reads_them(
    file: Path, process: Opening, told: Callable[..., None], locked: str, reads: bool
) -> None:
    pid = process()
    told(file, pid, kind="READ", part=locked)
    assert readers_of(file, PART) == [pid] * reads
