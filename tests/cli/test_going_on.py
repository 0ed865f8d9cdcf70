"""Going on with runs after their process: approvals and retries, by real processes."""

from __future__ import annotations

import os
from pathlib import Path
from select import select
from subprocess import Popen

import pytest

from tests.cli.conftest import Cli, finish, read_until

pytestmark = pytest.mark.slow

FLOW = """\
version: v1
name: deploy
plan: {mode: manual-approve}
steps:
  - name: once
    action: cmd.run
    args: {cmd: 'echo done >> "$once"; echo "N=7" >> "$TENURE_OUTPUT"'}
  - name: hold
    action: script.shell
    args: {src: hold.sh}
"""
HOLD = """\
echo holding
for n in $(seq 1500); do [ -e "$gate" ] && break; sleep 0.02; done
echo "released $N"
"""


@pytest.fixture
def waiting(cli: Cli, tmp_path: Path) -> Path:
    """Where its tasks leave traces; its file is gone as soon as it is submitted."""
    (cli.folder / "hold.sh").write_text(HOLD)
    given = ["--var", f"once={tmp_path / 'once'}", "--var", f"gate={tmp_path / 'gate'}"]
    flow = cli.workflow(FLOW)
    assert cli.call("run", flow, "--run-id", "first-run", *given).code == 7
    (cli.folder / "hold.sh").unlink()
    Path(flow).unlink()
    return tmp_path


def test_of_two_processes_that_approve_at_once_one_runs_it(cli: Cli, waiting: Path) -> None:
    both = [cli.start("approve", "first-run", "--by", name) for name in ("ada", "bob")]
    loser = first_to_end(both)
    (waiting / "gate").touch()
    ended = {process: finish(process) for process in both}
    (winner,) = [process for process in both if process is not loser]
    assert (ended[winner].code, ended[loser].code) == (0, 0), ended
    assert "first-run is approved by" in ended[loser].out
    assert "released 7" in ended[winner].out
    assert (waiting / "once").read_text() == "done\n"
    assert cli.call("status", "first-run", "--json").json["approval"]["by"] in ("ada", "bob")


def first_to_end(processes: list[Popen[str]]) -> Popen[str]:
    """The one that runs it holds until the gate opens."""
    watched = {os.pidfd_open(process.pid): process for process in processes}
    ready, _, _ = select(watched, [], [], 60)
    for descriptor in watched:
        os.close(descriptor)
    return watched[ready[0]]


def test_a_killed_approver_loses_nothing_that_was_done(cli: Cli, waiting: Path) -> None:
    approver = cli.start("approve", "first-run")
    read_until(approver, "holding")
    approver.kill()
    approver.wait()
    (waiting / "gate").touch()
    retried = cli.call("retry", "first-run", "--run-id", "second-run")
    assert retried.code == 7, "it wants an approval of its own"
    assert cli.call("status", "first-run", "--json").json["status"] == "interrupted"
    done = cli.call("approve", "second-run", "--json")
    assert done.code == 0, done.err
    record = done.json_lines[-1]
    assert (record["status"], record["retry_of"]) == ("success", "first-run")
    assert record["steps"][1]["hosts"]["local"]["stdout"] == "holding\nreleased 7\n"
    assert (waiting / "once").read_text() == "done\n", "what had come through did not run again"
