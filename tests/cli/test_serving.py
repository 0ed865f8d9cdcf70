"""``tenure submit``, ``worker`` and ``up``: queued here, executed there."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli, finish, read_until
from tests.cli.flows import GREET, WAIT

pytestmark = pytest.mark.slow

SECRET_FLOW = """
version: v1
name: guarded
secrets: [token]
steps:
  - {name: use, action: cmd.run, args: {cmd: 'test "$token" = opensesame'}}
"""


@pytest.fixture(autouse=True)
def quick(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_POLL_INTERVAL", "0.05s")
    monkeypatch.setenv("TENURE_CONTROL_INTERVAL", "0.05s")


@pytest.fixture
def worker(cli: Cli) -> Iterator[subprocess.Popen[str]]:
    started = cli.start("worker")
    yield started
    started.send_signal(signal.SIGTERM)
    assert finish(started).code == 0


def hold_of(cli: Cli, run_id: str) -> tuple[str, int]:
    """How the step of ``WAIT`` stands, and in which attempt."""
    host = cli.call("status", run_id, "--json").json["steps"][0]["hosts"]["local"]
    return host["status"], host.get("attempts", 0)


def test_a_queued_run_says_what_it_waits_for(cli: Cli) -> None:
    submitted = cli.call("submit", cli.workflow(GREET))
    assert submitted.code == 0
    run_id = submitted.out.strip()
    assert "no worker serves queue 'default'; start one: tenure worker" in submitted.err
    assert cli.call("status", run_id, "--json").json["status"] == "queued"


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["plain", "json"])
def test_who_waits_for_a_worker_that_is_not_there_is_told(cli: Cli, flags: tuple[str, ...]) -> None:
    """In the words of ``tenure explain``, and not where programs read."""
    waiting = cli.start("submit", cli.workflow(GREET), "--wait", *flags)
    assert waiting.stderr is not None
    said = waiting.stderr.readline()
    assert "no worker serves queue 'default'; start one: tenure worker" in said
    assert said == cli.call("explain", "latest").out
    assert cli.call("cancel", "latest").code == 0
    done = finish(waiting)
    assert done.code == 3
    assert "no worker serves" not in done.out + done.err


def test_a_store_from_which_no_worker_could_take_it_is_refused(cli: Cli) -> None:
    store = f"file://{cli.home}/runs"
    refused = cli.call("submit", cli.workflow(GREET), "--store", store)
    assert (refused.code, refused.out) == (7, "")
    assert "FileStore keeps no leases: no worker could ever take a run from it" in refused.err
    assert "sqlite:///runs.db" in refused.err
    assert not (cli.home / "runs").exists()


def test_a_store_that_ends_with_the_command_is_refused(cli: Cli) -> None:
    refused = cli.call("submit", cli.workflow(GREET), "--store", "memory:")
    assert (refused.code, refused.out) == (7, "")
    assert "memory: ends with this command, and the run with it" in refused.err


@pytest.mark.parametrize("command", ["up", "worker"])
def test_a_worker_on_a_store_without_leases_names_its_kind(cli: Cli, command: str) -> None:
    refused = finish(cli.start(command, "--store", f"file://{cli.home}/runs"))
    assert (refused.code, refused.out) == (7, "")
    assert "workers need a store with leases, and FileStore has none" in refused.err
    assert "sqlite:///runs.db" in refused.err


@pytest.mark.parametrize("command", [("worker",), ("up", "--no-gateway")])
def test_a_worker_on_a_store_that_nobody_else_sees_is_refused(
    cli: Cli, command: tuple[str, ...]
) -> None:
    refused = finish(cli.start(*command, "--store", "memory:"))
    assert (refused.code, refused.out) == (7, "")
    assert "memory: is seen by this process alone: no run can be submitted to it" in refused.err
    assert "sqlite:///runs.db" in refused.err


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_the_wrong_kind_of_store_is_one_mistake_whichever_command_makes_it(
    cli: Cli, kind: str
) -> None:
    store = "memory:" if kind == "memory" else f"file://{cli.home}/runs"
    commands = (("submit", cli.workflow(GREET)), ("worker",), ("up", "--no-gateway"))
    refused = [finish(cli.start(*command, "--json", "--store", store)) for command in commands]
    errors = [json.loads(each.err.splitlines()[-1])["error"] for each in refused]
    assert [(each["type"], each["exit_code"]) for each in errors] == [("not-supported", 7)] * 3
    assert [each.code for each in refused] == [7] * 3


def test_a_gateway_that_does_not_answer_is_an_error_as_a_database_is(cli: Cli) -> None:
    """After some patience, and before the worker has said that it serves."""
    refused = finish(cli.start("worker", "--store", "http://127.0.0.1:1"))
    assert (refused.code, refused.out) == (6, "")
    assert refused.err.startswith("Error: http://127.0.0.1:1 did not answer: ")
    assert "serving" not in refused.err
    assert "`tenure doctor` looks closer" in refused.err


def test_waiting_for_it_shows_it_as_run_would(cli: Cli, worker: subprocess.Popen[str]) -> None:
    done = cli.call("submit", cli.workflow(GREET), "--wait")
    assert done.code == 0
    assert "success" in done.out
    lines = read_until(worker, "success")
    assert ["running" in line for line in lines] == [True, False]


def test_the_doctor_knows_the_worker(cli: Cli, worker: subprocess.Popen[str]) -> None:
    cli.call("submit", cli.workflow(GREET), "--wait")
    said = cli.call("doctor").out
    assert f"worker      process {worker.pid} on " in said
    assert "default; 0 of 20 runs" in said


def test_the_exit_code_of_waiting_is_the_runs(cli: Cli, worker: subprocess.Popen[str]) -> None:
    text = GREET.replace("name: greet", "name: broken") + "\n"
    flow = cli.workflow(text.replace("echo", "exit 3; echo"))
    done = cli.call("submit", flow, "--wait", "--json")
    assert done.code == 1
    assert done.json_lines[-1]["status"] == "failed"


def test_options_of_a_queued_run_are_kept(cli: Cli) -> None:
    answer = cli.call(
        "submit", cli.workflow(GREET), "--json", "--queue", "gpu", "--priority", "7", "--after",
        "2h", "--label", "team=web", "--run-id", "my-run-0001",
    )  # fmt: skip
    run = answer.json
    assert (run["run_id"], run["queue"], run["priority"]) == ("my-run-0001", "gpu", 7)
    assert run["labels"] == {"team": "web"}
    assert run["run_after"] > run["created_at"]
    assert run["recovery"] == "resume"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--priority", "101"], "-100<=x<=100"),
        (["--after", "soon"], "neither a duration"),
        (["--limit", "nobody"], "no host or group"),
        (["--var", "nonsense"], "name=text"),
        (["--queue", "two\nlines"], "is not a queue's name"),
    ],
)
def test_what_cannot_be_queued_is_refused(cli: Cli, wrong: list[str], said: str) -> None:
    answer = cli.call("submit", cli.workflow(GREET), *wrong)
    assert answer.code == 2
    assert said in answer.err


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 101])
def test_a_queue_that_no_run_can_be_in_is_not_served(cli: Cli, name: str) -> None:
    refused = cli.call("worker", "--queue", "default", "--queue", name)
    assert refused.code == 2
    assert "--queue" in refused.err
    assert "is not a queue's name: printable, 1 to 100 characters" in refused.err


def test_a_worker_that_is_killed_is_followed_by_the_next(cli: Cli) -> None:
    gate = cli.folder / "gate"
    first = cli.start("worker")
    run_id = cli.call("submit", cli.workflow(WAIT), "--var", f"gate={gate}").out.strip()
    read_until(first, "running")
    while "holding" not in cli.call("logs", run_id).out:
        pass
    first.kill()
    first.wait()
    assert "is gone; no worker serves queue 'default'" in cli.call("explain", run_id).out
    gate.touch()
    second = cli.start("up")
    lines = read_until(second, "success")
    assert f"  {run_id}  taken over from process {first.pid} on " in lines[0]
    run = cli.call("status", run_id, "--json").json
    assert (run["status"], run["takeovers"]) == ("success", 1)


def test_a_worker_that_drains_serves_nobody_any_more(cli: Cli) -> None:
    gate = cli.folder / "gate"
    worker = cli.start("worker")
    cli.call("submit", cli.workflow(WAIT), "--var", f"gate={gate}")
    read_until(worker, "running")
    worker.send_signal(signal.SIGTERM)
    run_id = cli.call("submit", cli.workflow(GREET)).out.strip()
    stopping = "the only worker of queue 'default' is stopping; start another: tenure worker"
    while stopping not in (said := cli.call("explain", run_id).out):
        assert "free" in said
    examined = cli.call("doctor")
    assert "default; 1 of 20 runs, stopping" in examined.out
    assert "1 run waits in queue 'default', which no worker serves" in examined.out
    gate.touch()
    assert finish(worker).code == 0


def test_a_signal_drains_and_gives_back_what_does_not_end(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_DRAIN_TIMEOUT", "0s")
    worker = cli.start("worker", "--json")
    run_id = cli.call("submit", cli.workflow(WAIT), "--var", "gate=/nowhere").out.strip()
    read_until(worker, "host.running")
    worker.send_signal(signal.SIGTERM)
    done = finish(worker)
    assert done.code == 0
    assert "draining" in done.err
    last = [json.loads(line)["type"] for line in done.out.splitlines()[-2:]]
    assert last == ["host.unknown", "lease.released"]
    run = cli.call("status", run_id, "--json").json
    assert (run["status"], run["owner_id"]) == ("running", None)
    assert "given back by its owner" in cli.call("explain", run_id).out


def test_what_does_not_resume_is_interrupted_by_a_worker_that_stops(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_DRAIN_TIMEOUT", "0s")
    worker = cli.start("worker", "--json")
    flow = cli.workflow(f"{WAIT}recovery: interrupt\n")
    submitted = cli.start("submit", flow, "--var", "gate=/nowhere", "--wait")
    read_until(worker, "host.running")
    worker.send_signal(signal.SIGTERM)
    done = finish(worker)
    assert done.code == 0
    assert "given back; those that do not resume end as interrupted" in " ".join(done.err.split())
    waited = finish(submitted)
    assert waited.code == 4
    assert "its worker was told to stop, and it does not resume" in waited.out + waited.err


def test_who_watches_a_worker_sees_runs_come_back_and_go(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody is told that a task has failed whose end nobody saw."""
    monkeypatch.setenv("TENURE_DRAIN_TIMEOUT", "0s")
    run_id = cli.call("submit", cli.workflow(WAIT), "--var", "gate=/nowhere").out.strip()
    for attempt in (1, 2):
        worker = cli.start("worker")
        while hold_of(cli, run_id) != ("running", attempt):
            pass
        worker.send_signal(signal.SIGTERM)
        done = finish(worker)
        assert "(5 s more for those deaf to SIGTERM)" in done.err
        assert done.out.splitlines()[-1].endswith(f"{run_id}  given back, for the next worker")
    said = cli.call("status", run_id).out
    assert "hold is unknown on 1 host" in said
    assert "ended by its worker, which was told to stop (in attempt 2)" in said
    assert "failed on" not in said


def test_a_second_signal_says_when_its_runs_go_on(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = cli.start("worker")
    cli.call("submit", cli.workflow(WAIT), "--var", "gate=/nowhere")
    read_until(worker, "running")
    worker.send_signal(signal.SIGINT)
    assert worker.stderr is not None
    while "draining" not in worker.stderr.readline():
        pass
    worker.send_signal(signal.SIGINT)
    done = finish(worker)
    assert done.code == 130
    assert "on this machine in seconds, on others when their leases have ended" in done.err


def test_secrets_are_the_workers(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = cli.workflow(SECRET_FLOW)
    path = cli.folder / "token"
    path.write_text("opensesame\n")
    worker = cli.start("worker", "--secret", f"token=@{path}")
    assert cli.call("submit", flow, "--wait").code == 0
    worker.send_signal(signal.SIGTERM)
    finish(worker)
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "opensesame")
    worker = cli.start("worker")
    assert cli.call("submit", flow, "--wait").code == 0
    worker.send_signal(signal.SIGTERM)
    finish(worker)
    monkeypatch.delenv("TENURE_SECRET_TOKEN")
    cli.start("worker")
    refused = cli.call("submit", flow, "--wait")
    assert refused.code == 1
    assert "the secret 'token' is not given to the worker" in refused.out


def test_a_worker_that_cannot_serve_does_not_say_that_it_does(cli: Cli) -> None:
    refused = cli.call("worker", "--store", "sqlite:////dev/null/runs.db")
    assert refused.code != 0
    assert "/dev/null/runs.db" in refused.err
    assert "serving" not in refused.err
