"""A task that prints without measure, through the whole command."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import TENURE, Cli

pytestmark = pytest.mark.slow

GIGABYTE = """\
version: v1
name: gigabyte
steps:
  - name: before
    action: cmd.run
    args: {cmd: 'echo 1 > "${ready}"; read -r go < "${gate}"'}
  - name: flood
    action: cmd.run
    args: {cmd: 'yes "$(head -c 4000 /dev/zero | tr "\\0" x)" | head -c 1000000000'}
  - name: after
    action: cmd.run
    args: {cmd: 'echo 2 > "${ready}"; read -r go < "${gate}"'}
"""
LINES = """\
version: v1
name: lines
steps:
  - {name: count, action: cmd.run, args: {cmd: "seq 1 1000000"}}
"""


def peak_kilobytes(pid: int) -> int:
    """The most memory the process itself has ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


class Meeting:
    """Where a step says that it has come so far, and waits to be let go."""

    def __init__(self, folder: Path) -> None:
        self.ready, self.gate = folder / "ready", folder / "gate"
        for path in (self.ready, self.gate):
            os.mkfifo(path)
        self._ready = os.open(self.ready, os.O_RDWR)
        self._gate = os.open(self.gate, os.O_RDWR)

    def wait(self) -> None:
        readable, _, _ = select.select([self._ready], [], [], 60)
        assert readable, "the step never came so far"
        os.read(self._ready, 100)

    def let_go(self) -> None:
        os.write(self._gate, b"go\n")

    def close(self) -> None:
        os.close(self._ready)
        os.close(self._gate)


def test_a_gigabyte_of_output_takes_little_memory(cli: Cli) -> None:
    meeting = Meeting(cli.home)
    run = subprocess.Popen(
        [
            *(TENURE, "run", cli.workflow(GIGABYTE)),
            *("--var", f"ready={meeting.ready}", "--var", f"gate={meeting.gate}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        meeting.wait()
        before = peak_kilobytes(run.pid)
        meeting.let_go()
        meeting.wait()
        grown = peak_kilobytes(run.pid) - before
        meeting.let_go()
        assert run.wait(60) == 0
    finally:
        run.kill()
        run.wait()
        meeting.close()
    assert grown < 64 * 1024
    host = cli.call("status", "latest", "--json").json["steps"][1]["hosts"]["local"]
    assert host["truncated"] is True
    kept = cli.process("logs", "latest", "flood", "--raw").out
    assert 10 * 1024 * 1024 < len(kept) < 11 * 1024 * 1024
    assert kept.endswith("more bytes were dropped here]\n")


def test_a_million_short_lines_are_all_shown_in_their_order(cli: Cli) -> None:
    done = cli.process("run", cli.workflow(LINES))
    assert done.code == 0
    shown = [line.rpartition("| ")[2] for line in done.out.splitlines() if "| " in line]
    assert shown == [str(number) for number in range(1, 1_000_001)]
    assert cli.process("logs", "latest").out.splitlines() == shown
