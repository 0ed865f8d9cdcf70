"""Whatever becomes of ``tenure run``, nothing it started is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, finish, read_until
from tests.supervisor.hostile import TREES, left_of, nothing_left
from tests.supervisor.promise import AT_LEISURE

pytestmark = pytest.mark.slow

RUN = f"hostile-run-{os.getpid()}"


def place(cli: Cli) -> Path:
    """Where the tree works, and nobody else."""
    return cli.home / "tree"


def hostile(cli: Cli, name: str, **rest: str) -> str:
    """A workflow whose one task is a tree that does not want to end."""
    place(cli).mkdir()
    args = {"script": TREES[name], "dir": str(place(cli))}
    step = {"name": "fight", "action": "shell.run", "args": args, **rest}
    return cli.workflow(json.dumps({"version": "v1", "name": "hostile", "steps": [step]}))


@pytest.mark.parametrize("name", ["setsid", "deaf daemon", "no environment", "no marks", "bomb"])
async def test_after_kill(cli: Cli, name: str) -> None:
    run = cli.start("run", hostile(cli, name), "--run-id", RUN)
    read_until(run, "up")
    assert left_of(RUN, place(cli))
    run.kill()
    run.wait()
    await asyncio.wait_for(nothing_left(RUN, place(cli)), AT_LEISURE)


@pytest.mark.parametrize("name", ["deaf daemon", "pipe held open"])
async def test_after_ctrl_c(cli: Cli, name: str) -> None:
    run = cli.start("run", hostile(cli, name), "--run-id", RUN)
    read_until(run, "up")
    run.send_signal(signal.SIGINT)
    assert finish(run).code == 3
    assert left_of(RUN, place(cli)) == set()


async def test_after_a_time_out(cli: Cli) -> None:
    run = cli.start("run", hostile(cli, "deaf daemon", timeout="1s"), "--run-id", RUN)
    assert finish(run).code == 1
    assert left_of(RUN, place(cli)) == set()


async def test_when_the_runner_is_frozen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease cannot be trusted for ever: its tasks end without it, and it stops by itself when
    it wakes."""
    monkeypatch.setenv("TENURE_LEASE_DURATION", "6s")
    monkeypatch.setenv("TENURE_RENEW_INTERVAL", "1s")
    monkeypatch.setenv("TENURE_VISIBILITY_TIMEOUT", "2s")
    monkeypatch.setenv("TENURE_POLL_INTERVAL", "0.5s")
    run = cli.start("run", hostile(cli, "deaf daemon"), "--run-id", RUN)
    read_until(run, "up")
    os.kill(run.pid, signal.SIGSTOP)
    try:
        await asyncio.wait_for(nothing_left(RUN, place(cli)), AT_LEISURE)
    finally:
        os.kill(run.pid, signal.SIGCONT)
    done = finish(run)
    record = cli.process("status", RUN, "--json").json
    assert (done.code, record["status"]) == (4, "interrupted")
    (step,) = record["steps"]
    assert step["hosts"]["local"]["status"] == "interrupted"
    assert (
        record["interrupted_reason"]
        == "stopped by its owner: its lease could not be renewed in time"
    )


def test_a_retry_begins_when_the_old_task_is_gone(cli: Cli) -> None:
    """Its runner was killed; the task itself takes its time."""
    diary = cli.folder / "diary"
    script = (
        f'trap "" TERM; echo "begins $TENURE_RUN_ID" >> {diary}; echo up; '
        f"for n in $(seq 40); do [ -e {cli.folder}/go ] && break; sleep 0.05; done; "
        f'echo "ends $TENURE_RUN_ID" >> {diary}'
    )
    step = {"name": "slow", "action": "shell.run", "args": {"script": script}}
    flow = cli.workflow(json.dumps({"version": "v1", "name": "slow", "steps": [step]}))
    run = cli.start("run", flow, "--run-id", RUN)
    read_until(run, "up")
    run.kill()
    run.wait()
    assert cli.process("retry", RUN, "--run-id", "the-retry-1").code == 0
    assert diary.read_text().split() == [
        *("begins", RUN, "ends", RUN),
        *("begins", "the-retry-1", "ends", "the-retry-1"),
    ]


def test_a_run_whose_process_was_killed_can_be_canceled(cli: Cli) -> None:
    run = cli.start("run", hostile(cli, "setsid"), "--run-id", RUN)
    read_until(run, "up")
    run.kill()
    run.wait()
    answer = cli.process("cancel", RUN, "--reason", "wrong", "--json")
    assert answer.code == 0
    assert (answer.json["status"], answer.json["cancel_reason"]) == ("canceled", "wrong")
    assert answer.err == ""
