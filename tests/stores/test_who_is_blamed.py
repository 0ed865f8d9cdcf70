"""Whom an error names, and whom it advises to end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.model.errors import StoreUnavailable
from tenure.stores.file.disk import Locked
from tenure.stores.file.patience import Patience
from tenure.stores.file.turn import Turn
from tenure.stores.lock_holder import holders_of, who_holds

WRITES, READS = 2, 1
"""``LOCK_EX`` and ``LOCK_SH``."""
HOLDER = """
import fcntl, os, signal, sys

file = open(sys.argv[1], "rb")
fcntl.flock(file, int(sys.argv[2]))
print("held", flush=True)
if sys.argv[3] == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "held"
    path.touch()
    return path


@contextmanager
def held(path: Path, how: int, state: str = "running") -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), str(how), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        if state == "stopped":
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("seen", ["all the time", "at the end"])
def test_who_reads_and_goes_on_is_not_to_be_ended(path: Path, seen: str) -> None:
    with held(path, READS) as pid:
        seen_first = holders_of(path) if seen == "all the time" else frozenset({1})
        said = who_holds(path, 10.0, seen_first=seen_first)
        assert said == (
            f"{path} has been read by others all the time for 10 s, now by process {pid}; send "
            "the same call again"
        )


def test_who_writes_all_the_time_may_hang(path: Path) -> None:
    with held(path, WRITES) as pid:
        said = who_holds(path, 10.0, seen_first=holders_of(path))
        assert said == (
            f"another process has held {path} for 10 s: process {pid}; if it hangs, end it "
            f"(kill -KILL {pid})"
        )


def test_who_was_not_seen_all_the_time_has_not_held_it(path: Path) -> None:
    with held(path, WRITES) as pid:
        said = who_holds(path, 10.0, seen_first=frozenset({1}))
        assert said == (
            f"{path} has been written by others all the time for 10 s, now by process {pid}; send "
            "the same call again"
        )


def test_nobody_looked_first(path: Path) -> None:
    with held(path, WRITES) as pid:
        assert who_holds(path, 10.0) == (
            f"{path} has been locked for 10 s, now by process {pid}; if it hangs, end it "
            f"(kill -KILL {pid})"
        )


@pytest.mark.parametrize("how", [READS, WRITES])
def test_who_is_stopped_is_named_first(path: Path, how: int) -> None:
    others = [held(path, READS) for _ in range(2 if how == READS else 0)]
    with held(path, how, "stopped") as pid:
        for other in others:
            other.__enter__()
        try:
            advice = (
                f"process {pid}, which is stopped; let it go on (kill -CONT {pid}) or end it "
                f"(kill -KILL {pid})"
            )
            said = who_holds(path, 10.0, seen_first=frozenset({pid}))
            assert said == f"another process has held {path} for 10 s: {advice}"
            said = who_holds(path, 10.0, seen_first=frozenset())
            assert said == f"{path} has been locked for 10 s, now by {advice}"
        finally:
            for other in others:
                other.__exit__(None, None, None)


def test_nobody_can_be_seen(path: Path) -> None:
    assert "look for a stopped or hung process" in who_holds(path, 10.0, seen_first=frozenset())


def test_who_was_first_seen_with_another_file_has_not_held_this_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list may wait for one after the other."""
    now = [1000.0]
    monkeypatch.setattr("tenure.stores.file.patience.monotonic", lambda: now[0])
    monkeypatch.setattr("tenure.stores.file.turn.monotonic", lambda: now[0])
    other, gate = path.with_name("other"), path.with_name(".gate")
    os.link(path, other)  # so that one process has both locked
    with held(path, WRITES, "stopped") as pid, Turn(Patience(), 10.0) as turn:
        with pytest.raises(Locked):
            turn.look(lambda turn: turn.lock(other, gate, exclusive=False))
        now[0] += 10.0
        with pytest.raises(StoreUnavailable, match=f"locked for 10 s, now by process {pid}, which"):
            turn.look(lambda turn: turn.lock(path, gate, exclusive=False))
        with pytest.raises(StoreUnavailable, match=f"has held {other} for 10 s: process {pid},"):
            turn.look(lambda turn: turn.lock(other, gate, exclusive=False))
