"""A test that waits for a minute and computes nothing, in a process of its own beside the others:
begun with the first of them, and asked for its outcome by the last."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ASKING = "test_run_outlives_a_minute_without_its_server"
"""Who asks. Where it is not selected, nothing is begun."""
WAITING = "tests/postgres/test_outage.py::test_run_outlives_a_server_that_was_away"

_begun: list[subprocess.Popen[bytes]] = []


def _folder() -> Path:
    """The same one for all processes of a test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    return Path(tempfile.gettempdir(), f"tenure-beside-{run}")


def _output() -> Path:
    return _folder() / "output"


def begin(items: list[pytest.Item]) -> None:
    """Every test process comes by, and the first one begins. Whether it goes on is told by a lock,
    to whoever asks: that may be another process."""
    if not any(item.name == ASKING for item in items):
        return
    try:
        _folder().mkdir()
    except FileExistsError:
        return
    clean = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    started = _folder() / "started"
    with started.open("wb") as output:
        fcntl.flock(output, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "pytest", "-m", "long", WAITING]
        _begun.append(
            subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[1],
                env=clean,
            )
        )
        started.rename(_output())


def outcome() -> str:
    """What it printed, once it has ended."""
    while not _output().exists():
        time.sleep(0.01)
    with _output().open("rb") as output:
        fcntl.flock(output, fcntl.LOCK_SH)
        said = output.read().decode()
    shutil.rmtree(_folder())
    return said


def end(*, at_once: bool) -> None:
    """Nothing outlives who began it."""
    for process in _begun:
        if at_once:
            process.send_signal(signal.SIGINT)
        process.wait()
        if at_once:
            shutil.rmtree(_folder(), ignore_errors=True)
