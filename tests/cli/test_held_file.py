"""A SQLite file whose lock a stopped process holds: who asks hears so, and whom to let go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tenure.cli import context
from tests.cli.conftest import Cli
from tests.cli.flows import GREET

pytestmark = pytest.mark.slow

HOLDS = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def queued(cli: Cli) -> str:
    return cli.call("submit", cli.workflow(GREET)).out.strip()


@pytest.fixture
def stopped(
    cli: Cli, queued: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[str]]:
    monkeypatch.setattr(context, "BUSY_TIMEOUT_S", 0.5)
    file = cli.home / ".local/share/tenure/runs.db"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        yield holder
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize("command", ["cancel", "annotate", "submit", "reconcile"])
def test_who_wants_to_write_is_told_in_time_whom_to_let_go_on(
    cli: Cli, stopped: subprocess.Popen[str], queued: str, command: str
) -> None:
    arguments = {
        "cancel": [queued],
        "annotate": [queued, "ticket=7"],
        "submit": [cli.workflow(GREET)],
        "reconcile": [],
    }
    refused = cli.call(command, *arguments[command])
    assert (refused.code, refused.out) == (6, "")
    assert "runs.db has been locked for " in refused.err
    assert f"process {stopped.pid}, which is stopped" in refused.err
    assert f"kill -CONT {stopped.pid}" in refused.err
    stopped.kill()
    stopped.wait()
    assert cli.call(command, *arguments[command]).code == 0


@pytest.mark.parametrize("command", ["status", "explain", "list"])
def test_who_only_looks_is_answered(
    cli: Cli, stopped: subprocess.Popen[str], queued: str, command: str
) -> None:
    assert cli.call(command, *([] if command == "list" else [queued])).code == 0
