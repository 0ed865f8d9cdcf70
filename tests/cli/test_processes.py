"""Several processes at one store: signals, crashes, watching, following."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from tenure.cli import context
from tests.cli.conftest import NOTHING_TO_RECONCILE, Cli, finish, read_until
from tests.cli.flows import BREAK, GREET, STUBBORN, WAIT

pytestmark = pytest.mark.slow

SHORT_LEASE = {
    "LEASE_DURATION": "2s",
    "RENEW_INTERVAL": "0.5s",
    "VISIBILITY_TIMEOUT": "1s",
    "POLL_INTERVAL": "0.25s",
}


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


def kill(run: subprocess.Popen[str]) -> None:
    run.kill()
    run.wait()


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


def test_term_to_a_process_and_to_its_group_is_one_request(cli: Cli) -> None:
    """As `timeout` and service managers send it."""
    run = started(cli)
    run.send_signal(signal.SIGTERM)
    assert run.stderr is not None
    assert "canceling" in run.stderr.readline()
    run.send_signal(signal.SIGTERM)
    done = finish(run)
    assert done.code == 3
    assert "stopped at once" not in done.err


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


DEAF = """
import asyncio, sys, threading
from tenure.cli.signals import LastWords, Stopped, stoppable

async def ask(_):
    return print("asked", flush=True) is None

async def work():
    print("works", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            {when_cancelled}

last_words = LastWords(lambda: print("stopped", flush=True) or 7)
try:
    asyncio.run(stoppable(work(), ask, last_words))
except Stopped:
    last_words()
    threading.Event().wait()
"""


@pytest.mark.parametrize("when_cancelled", ["pass", "raise"], ids=["deaf", "held up by a thread"])
def test_two_signals_end_a_process_whose_work_does_not_end(when_cancelled: str) -> None:
    """It calls what the command calls: no workflow can bring this about."""
    program = [sys.executable, "-c", DEAF.format(when_cancelled=when_cancelled)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=20)
    assert (process.returncode, said) == (7, "stopped\n")


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=["lines", "json"])
def test_without_tracking_a_signal_cancels_too(cli: Cli, arguments: tuple[str, ...]) -> None:
    run = started(cli, "--no-tracking", *arguments)
    run.send_signal(signal.SIGINT)
    done = finish(run)
    assert done.code == 3
    last = done.out.splitlines()[-1]
    assert json.loads(last)["type"] == "run.canceled" if arguments else last == "⊘ canceled"


def test_a_killed_run_is_marked_by_the_next_command_that_writes(cli: Cli) -> None:
    run = started(cli, "--run-id", "killed-run")
    kill(run)
    assert "! interrupted (owner gone)" in cli.call("list").out
    status = cli.call("status", "killed-run")
    assert status.out.startswith("! interrupted (owner gone)  wait")
    assert "is gone; the next reconcile marks it interrupted" in status.out
    assert cli.call("status", "killed-run", "--json").json["status"] == "running"
    other = cli.call("run", cli.workflow(GREET, "other.yaml"), "-q")
    assert (other.code, other.out) == (0, "")
    assert other.err == ("warning: marked 1 run as interrupted: its process is gone (killed-run)\n")
    record = cli.call("status", "killed-run", "--json").json
    assert record["status"] == "interrupted"
    assert record["interrupted_reason"]
    assert record["steps"][0]["hosts"]["local"]["status"] in ("interrupted", "unknown")
    assert "! interrupted" in cli.call("list").out
    watched = cli.call("watch", "killed-run")
    assert watched.code == 4
    assert "! interrupted  wait" in watched.out


def test_a_frozen_run_that_thaws_tells_the_end_it_was_given(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SHORT_LEASE.items():
        monkeypatch.setenv(f"TENURE_{name}", value)
    run = started(cli, "--run-id", "frozen-run")
    run.send_signal(signal.SIGSTOP)
    while (said := cli.call("explain", "frozen-run", "--json").json)["reason"] == "waits_for_hosts":
        pass
    assert said["reason"] == "owner_silent"
    assert f"process {run.pid} on {platform.node()}, is alive but did not renew" in said["text"]
    assert "owner silent" in cli.call("list").out
    assert cli.call("reconcile", "--reason", "it was silent").code == 0
    run.send_signal(signal.SIGCONT)
    done = finish(run)
    assert done.code == 4
    assert "! interrupted  wait" in done.out
    assert "another process ended the run" in done.err


def test_a_store_that_is_removed_in_mid_run_is_noticed(cli: Cli) -> None:
    gate, store = cli.home / "gate", cli.home / "runs.db"
    run = started(cli, "--store", f"sqlite:///{store}", gate=str(gate))
    store.unlink()
    gate.touch()
    done = finish(run)
    assert done.code == 6
    assert f"{store} was removed or moved away while this process had it open" in done.err
    assert "answers" not in done.err
    assert "Traceback" not in done.err


def test_reconcile_marks_killed_runs_and_says_how_many(cli: Cli) -> None:
    assert cli.call("reconcile").out.startswith("nothing to do")
    runs = [started(cli, "--run-id", f"killed-run-{number}") for number in range(2)]
    for run in runs:
        kill(run)
    answer = cli.call("reconcile", "--reason", "power cut", "--json")
    assert answer.code == 0
    assert answer.json["interrupted"] == 2
    assert sorted(answer.json["run_ids"]) == ["killed-run-0", "killed-run-1"]
    assert cli.call("status", "latest", "--json").json["interrupted_reason"] == "power cut"
    assert cli.call("reconcile", "--json").json == NOTHING_TO_RECONCILE


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


def test_watch_ends_when_nobody_will_go_on_with_the_run(cli: Cli) -> None:
    run = started(cli)
    watch = cli.start("watch", "latest")
    read_until(watch, "hold")
    kill(run)
    done = finish(watch)
    assert done.code == 4
    assert done.err == (
        f"process {run.pid} on {platform.node()} is gone: no worker continues this run; "
        "tenure reconcile marks it as interrupted\n"
    )
    record = cli.call("status", "latest", "--json").json
    assert record["status"] == "running", "watching writes nothing"
    again = cli.call("watch", "latest", "--json")
    assert again.code == 4
    assert again.json_lines[-1] == record
    assert cli.call("reconcile", "--json").json["interrupted"] == 1
    assert cli.call("watch", "latest").code == 4


def test_watch_of_a_killed_run_that_was_asked_to_stop_counts_as_canceled(cli: Cli) -> None:
    run = cli.start("run", cli.workflow(STUBBORN))
    read_until(run, "holding")
    cli.call("cancel", "latest")
    kill(run)
    done = cli.call("watch", "latest")
    assert done.code == 3
    assert "tenure reconcile marks it as canceled" in done.err


def test_followed_logs_end_when_nobody_will_go_on_with_the_run(cli: Cli) -> None:
    run = started(cli)
    follow = cli.start("logs", "latest", "--follow")
    assert read_until(follow, "holding") == ["holding"]
    kill(run)
    done = finish(follow)
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("is gone: nothing more will be printed\n")


def test_logs_can_be_followed(cli: Cli) -> None:
    gate = cli.home / "gate"
    run = started(cli, gate=str(gate))
    follow = cli.start("logs", "latest", "--follow")
    assert read_until(follow, "holding") == ["holding"]
    gate.touch()
    done = finish(follow)
    assert (done.code, done.out) == (0, "released\n")
    assert finish(run).code == 0


# -- a store that another program holds -----------------------------------------------------------


def test_a_run_waits_for_a_store_that_is_held_and_says_so(cli: Cli) -> None:
    store, gate = cli.folder / "shared.db", cli.home / "gate"
    run = started(cli, "--store", f"sqlite:///{store}", gate=str(gate))
    held_by_another = apsw.Connection(str(store))
    held_by_another.execute("begin exclusive")
    gate.touch()
    assert run.stderr is not None
    assert f"another process has locked {store}; waiting for it" in run.stderr.readline()
    held_by_another.close()
    assert finish(run).code == 0


@pytest.mark.parametrize("command", ["cancel", "submit", "reconcile"])
def test_a_store_that_stays_held_is_no_answer_and_looking_is_answered(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(context, "BUSY_TIMEOUT_S", 0.2)
    monkeypatch.setenv("TENURE_CALLBACK_FLUSH", "0s")
    flow = cli.workflow(GREET)
    queued = cli.call("submit", flow).out.strip()
    arguments = {"cancel": [queued], "submit": [flow], "reconcile": []}[command]
    held_by_another = apsw.Connection(str(cli.home / ".local/share/tenure/runs.db"))
    held_by_another.execute("begin immediate")
    refused = cli.call(command, *arguments)
    assert (refused.code, refused.out) == (6, "")
    assert "runs.db is locked by another process" in refused.err
    assert cli.call("status", queued).code == cli.call("list").code == 0
    held_by_another.close()
    assert cli.call(command, *arguments).code == 0
