"""Several processes at one store: signals, crashes, watching, following, broken pipes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import TENURE, Cli, finish, read_until
from tests.cli.flows import BREAK, GREET, STUBBORN, WAIT

pytestmark = pytest.mark.slow


def started(cli: Cli, *arguments: str, gate: str = "/nowhere") -> subprocess.Popen[str]:
    """A run in mid-step."""
    run = cli.start("run", cli.workflow(WAIT), "--var", f"gate={gate}", *arguments)
    read_until(run, "holding" if "--json" not in arguments else "host.running")
    return run


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


# -- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGINT, "canceled with Ctrl-C"), (signal.SIGTERM, "canceled by SIGTERM")],
)
def test_one_signal_cancels_cleanly(cli: Cli, number: signal.Signals, reason: str) -> None:
    run = started(cli)
    run.send_signal(number)
    done = finish(run)
    assert done.code == 3
    assert "canceling" in done.err
    assert reason in done.out
    record = cli.call("status", "latest", "--json").json
    assert record["status"] == "canceled"
    assert record["steps"][0]["hosts"]["local"]["status"] == "canceled"


def test_two_signals_stop_at_once_and_leave_no_task(cli: Cli) -> None:
    pids = cli.home / "pid"
    flow = cli.workflow(STUBBORN.replace("echo holding", f"echo $$ > {pids}; echo holding"))
    run = cli.start("run", flow)
    read_until(run, "holding")
    run.send_signal(signal.SIGINT)
    assert run.stderr is not None
    assert "canceling" in run.stderr.readline()
    run.send_signal(signal.SIGINT)
    done = finish(run)
    assert done.code == 130
    assert "stopped at once" in done.err
    assert not lives(int(pids.read_text()))
    record = cli.call("annotate", "latest", "seen=yes", "--json").json
    assert record["status"] == "canceled"


def test_without_tracking_a_signal_cancels_too(cli: Cli) -> None:
    run = started(cli, "--no-tracking")
    run.send_signal(signal.SIGINT)
    assert finish(run).code == 3


def test_a_killed_run_is_marked_by_the_next_command_that_writes(cli: Cli) -> None:
    run = started(cli, "--run-id", "killed-run")
    run.kill()
    run.wait()
    assert "owner gone" in cli.call("list").out
    status = cli.call("status", "killed-run")
    assert "is gone; the next reconcile marks it interrupted" in status.out
    assert cli.call("status", "killed-run", "--json").json["status"] == "running"
    assert cli.call("run", cli.workflow(GREET, "other.yaml"), "-q").code == 0
    record = cli.call("status", "killed-run", "--json").json
    assert record["status"] == "interrupted"
    assert record["interrupted_reason"]
    assert record["steps"][0]["hosts"]["local"]["status"] in ("interrupted", "unknown")
    assert "! interrupted" in cli.call("list").out
    watched = cli.call("watch", "killed-run")
    assert watched.code == 4
    assert "! interrupted  wait" in watched.out


def test_reconcile_marks_killed_runs_and_says_how_many(cli: Cli) -> None:
    assert cli.call("reconcile").out.startswith("nothing to do")
    runs = [started(cli, "--run-id", f"killed-run-{number}") for number in range(2)]
    for run in runs:
        run.kill()
        run.wait()
    answer = cli.call("reconcile", "--reason", "power cut", "--json")
    assert (answer.code, answer.json) == (0, {"interrupted": 2})
    assert cli.call("status", "latest", "--json").json["interrupted_reason"] == "power cut"
    assert cli.call("reconcile", "--json").json == {"interrupted": 0}


def test_reconcile_leaves_a_live_run_alone(cli: Cli) -> None:
    gate = cli.home / "gate"
    run = started(cli, gate=str(gate))
    assert cli.call("reconcile", "--json").json == {"interrupted": 0}
    gate.touch()
    assert finish(run).code == 0


# -- other processes ------------------------------------------------------------------------------


def test_cancel_from_another_process(cli: Cli) -> None:
    run = started(cli)
    said = cli.call("cancel", "latest", "--reason", "wrong release")
    assert said.code == 0
    assert f"process {run.pid} on " in said.out
    assert "was asked to stop" in said.out
    done = finish(run)
    assert done.code == 3
    assert "wrong release" in done.out
    assert "had already ended as canceled" in cli.call("cancel", "latest").out


def test_explain_names_owner_and_host(cli: Cli) -> None:
    gate = cli.home / "gate"
    run = started(cli, gate=str(gate))
    said = cli.call("explain", "latest").out
    assert f"running on process {run.pid} on " in said
    assert "step 'hold' waits for host local" in said
    assert cli.call("explain", "latest", "--json").json["hosts"] == ["local"]
    gate.touch()
    assert finish(run).code == 0


def test_watch_follows_a_run_of_another_process(cli: Cli) -> None:
    gate = cli.home / "gate"
    run = started(cli, "--json", gate=str(gate))
    watch = cli.start("watch", "latest", "--json")
    before = read_until(watch, "host.running")
    gate.touch()
    own, watched = finish(run), finish(watch)
    assert (own.code, watched.code) == (0, 0)
    assert watched.json_lines[-1] == own.json_lines[-1]
    assert watched.json_lines[-2]["type"] == "run.success"
    everything = cli.call("watch", "latest", "--json").out.splitlines()
    assert [*before, *watched.out.splitlines()] == everything, "each event once"


def test_watch_tells_the_same_events_as_run(cli: Cli) -> None:
    run = cli.call("run", cli.workflow(BREAK), "--json")
    watch = cli.call("watch", "latest", "--json")
    assert watch.out == run.out
    assert watch.code == 1


def test_watch_of_a_store_without_journal_tells_what_differs(cli: Cli) -> None:
    store = f"file://{cli.home}/runs"
    cli.call("run", cli.workflow(BREAK), "-q", "--store", store)
    watch = cli.call("watch", "latest", "--json", "--store", store)
    assert watch.code == 1
    types = [line.get("type") for line in watch.json_lines]
    assert "host.failed" in types
    assert types[-2] == "run.failed"


def test_ctrl_c_stops_watching_and_the_run_goes_on(cli: Cli) -> None:
    gate = cli.home / "gate"
    run = started(cli, gate=str(gate))
    watch = cli.start("watch", "latest")
    read_until(watch, "hold")
    watch.send_signal(signal.SIGINT)
    done = finish(watch)
    assert done.code == 130
    assert "stopped watching" in done.err
    gate.touch()
    assert finish(run).code == 0


def test_watch_says_when_the_owner_is_gone(cli: Cli) -> None:
    run = started(cli)
    watch = cli.start("watch", "latest")
    read_until(watch, "hold")
    run.kill()
    run.wait()
    assert watch.stderr is not None
    assert f"process {run.pid}" in watch.stderr.readline()
    assert cli.call("reconcile", "--json").json == {"interrupted": 1}
    assert finish(watch).code == 4


def test_logs_can_be_followed(cli: Cli) -> None:
    gate = cli.home / "gate"
    run = started(cli, gate=str(gate))
    follow = cli.start("logs", "latest", "--follow")
    assert read_until(follow, "holding") == ["holding"]
    gate.touch()
    done = finish(follow)
    assert (done.code, done.out) == (0, "released\n")
    assert finish(run).code == 0


# -- pipes ----------------------------------------------------------------------------------------


def piped(*arguments: str) -> tuple[int, str]:
    """The exit code and stderr of the command when its reader leaves at once."""
    process = subprocess.Popen(
        [TENURE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    return process.wait(60), said


def test_a_reader_that_leaves_is_no_error(cli: Cli) -> None:
    assert piped("run", cli.workflow(GREET)) == (0, "")
    assert piped("run", cli.workflow(BREAK)) == (1, "")
    assert piped("list") == (0, "")
    assert piped("schema") == (0, "")
    assert piped("--help") == (0, "")


def test_a_run_goes_on_although_nobody_reads_its_lines(cli: Cli) -> None:
    """A pager that pauses: the pipe is full, the run ends all the same."""
    flow = cli.workflow(
        "version: v1\nname: chatty\n"
        "steps: [{name: s, action: cmd.run, args: {cmd: 'seq 1 100000'}}]"
    )
    run = cli.start("run", flow)
    wait_for_a_run(cli)
    watched = cli.process("watch", "latest", "--json")
    assert watched.json_lines[-1]["status"] == "success"
    done = finish(run)
    assert done.code == 0
    assert "run success" in done.out


def wait_for_a_run(cli: Cli) -> None:
    while not cli.call("list", "--json").json["runs"]:
        pass
