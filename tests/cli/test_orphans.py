"""Whatever becomes of ``tenure run``, nothing it started is left, and the next command that writes
marks the run whose process is gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import embedded_run, start_step
from tests.cli.conftest import Cli, finish, read_until
from tests.cli.flows import GREET
from tests.supervisor.grouping import allowed, group_of
from tests.supervisor.hostile import TREES, left_of, nothing_left
from tests.supervisor.promise import AT_LEISURE

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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deaf daemon", "no marks"])
def test_after_kill(cli: Cli, name: str) -> None:
    run = cli.start("run", hostile(cli, name), "--run-id", RUN)
    read_until(run, "up")
    assert left_of(RUN, place(cli))
    run.kill()
    run.wait()
    asyncio.run(asyncio.wait_for(nothing_left(RUN, place(cli)), AT_LEISURE))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deaf daemon", "pipe held open"])
def test_after_ctrl_c(cli: Cli, name: str) -> None:
    run = cli.start("run", hostile(cli, name), "--run-id", RUN)
    read_until(run, "up")
    run.send_signal(signal.SIGINT)
    assert finish(run).code == 3
    assert left_of(RUN, place(cli)) == set()


@pytest.mark.slow
def test_after_a_time_out(cli: Cli) -> None:
    run = cli.start("run", hostile(cli, "deaf daemon", timeout="1s"), "--run-id", RUN)
    assert finish(run).code == 1
    assert left_of(RUN, place(cli)) == set()


@pytest.mark.slow
def test_when_the_runner_is_frozen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
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
        asyncio.run(asyncio.wait_for(nothing_left(RUN, place(cli)), AT_LEISURE))
    finally:
        os.kill(run.pid, signal.SIGCONT)
    done = finish(run)
    record = cli.call("status", RUN, "--json").json
    assert (done.code, record["status"]) == (4, "interrupted")
    (step,) = record["steps"]
    assert step["hosts"]["local"]["status"] == "interrupted"
    assert (
        record["interrupted_reason"]
        == "stopped by its owner: its lease could not be renewed in time"
    )


@pytest.mark.slow
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
    assert cli.call("retry", RUN, "--run-id", "the-retry-1").code == 0
    assert diary.read_text().split() == [
        *("begins", RUN, "ends", RUN),
        *("begins", "the-retry-1", "ends", "the-retry-1"),
    ]


LEFT_RUN = "left-running"


async def leave_running(path: str, owner_id: str) -> None:
    async with await SQLiteStore.open(path) as store:
        await store.create_run(embedded_run(owner_id, run_id=LEFT_RUN))
        await store.update_run(start_step(await store.get_run(LEFT_RUN)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "flow.yaml", "-q"), 0),
        (("annotate", "other-run", "ticket=OPS-1"), 0),
        (("cancel", "other-run"), 0),
        (("reconcile",), 0),
        (("store", "prune", "--older-than", "1d"), 0),
        (("store", "migrate"), 0),
        (("callbacks", "redeliver", "--dead"), 0),
        (("token", "revoke", "unknown"), 5),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_the_next_command_that_writes_marks_them_and_says_so(
    cli: Cli, arguments: tuple[str, ...], code: int, dead_owner: str
) -> None:
    store = ("--store", "sqlite:///runs.db")
    cli.call("run", cli.workflow(GREET), "-q", "--run-id", "other-run", *store)
    cli.call("token", "create", "old", "--role", "viewer", *store)
    asyncio.run(leave_running("runs.db", dead_owner))
    done = cli.call(*arguments, *store)
    assert done.code == code
    said = done.out if arguments == ("reconcile",) else done.err
    assert "marked" in said
    assert LEFT_RUN in said
    record = cli.call("status", LEFT_RUN, "--json", *store).json
    assert record["status"] == "interrupted"
    assert {step["status"] for step in record["steps"]} == {"interrupted"}


@pytest.mark.slow
def test_who_cancels_the_run_itself_is_told_once(cli: Cli, dead_owner: str) -> None:
    store = ("--store", "sqlite:///runs.db")
    asyncio.run(leave_running("runs.db", dead_owner))
    done = cli.call("cancel", LEFT_RUN, *store)
    assert (done.out, done.err) == (f"{LEFT_RUN} is canceled\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("status", LEFT_RUN),
        ("explain", LEFT_RUN),
        ("store", "check"),
        ("callbacks", "list"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_looks_changes_nothing(
    cli: Cli, arguments: tuple[str, ...], dead_owner: str
) -> None:
    store = ("--store", "sqlite:///runs.db")
    asyncio.run(leave_running("runs.db", dead_owner))
    assert cli.call(*arguments, *store).code == 0
    assert cli.call("status", LEFT_RUN, "--json", *store).json["status"] == "running"


WHERE = """
version: v1
name: where
steps:
  - name: look
    action: shell.run
    args: {script: "echo group=$(sed -n s/^0:://p /proc/self/cgroup)"}
"""


@pytest.mark.parametrize("wanted", ["", "no"])
def test_the_setting_decides(cli: Cli, monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("TENURE_TASK_GROUPS", wanted)
    done = cli.call("run", cli.workflow(WHERE))
    assert done.code == 0, done.err
    [group] = [line.partition("group=")[2] for line in done.out.splitlines() if "group=" in line]
    assert ("-tasks/" in group) is (allowed() and wanted == "")
    assert wanted == "" or group == group_of()
