"""``tenure submit``, ``worker`` and ``up``: queued here, executed there, perhaps with a broker."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.brokers.server import Server
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


def test_who_waits_for_a_worker_that_is_not_there_is_told(cli: Cli) -> None:
    """In the words of ``tenure explain``, and not where programs read."""
    waiting = cli.start("submit", cli.workflow(GREET), "--wait", "--json")
    assert waiting.stderr is not None
    said = waiting.stderr.readline()
    assert "no worker serves queue 'default'; start one: tenure worker" in said
    assert said == cli.call("explain", "latest").out
    assert cli.call("cancel", "latest").code == 0
    done = finish(waiting)
    assert done.code == 3
    assert "no worker serves" not in done.out + done.err


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("memory:", ("memory: ends with this command", "memory: is seen by this process alone")),
        (
            "file://{home}/runs",
            ("FileStore keeps no leases", "need a store with leases, and FileStore has none"),
        ),
    ],
)
def test_the_wrong_kind_of_store_is_one_mistake_whichever_command_makes_it(
    cli: Cli, store: str, words: tuple[str, str]
) -> None:
    flow = cli.workflow(GREET)
    for command in (("submit", flow), ("worker",), ("up", "--no-gateway")):
        refused = cli.call(*command, "--store", store.format(home=cli.home), "--json")
        assert (refused.code, refused.out) == (7, "")
        error = json.loads(refused.err.splitlines()[-1])["error"]
        assert (error["type"], error["exit_code"]) == ("not-supported", 7)
        assert words[command[0] != "submit"] in error["message"]
        assert "sqlite:///runs.db" in refused.err
    assert not (cli.home / "runs").exists()


def test_a_gateway_that_does_not_answer_is_an_error_as_a_database_is(cli: Cli) -> None:
    """After some patience, and before the worker has said that it serves."""
    refused = cli.call("worker", "--store", "http://127.0.0.1:1")
    assert (refused.code, refused.out) == (6, "")
    assert refused.err.startswith("Error: http://127.0.0.1:1 did not answer: ")
    assert "serving" not in refused.err
    assert "`tenure doctor --store http://127.0.0.1:1` looks closer" in refused.err


def test_waiting_for_it_shows_it_as_run_would(cli: Cli, worker: subprocess.Popen[str]) -> None:
    done = cli.call("submit", cli.workflow(GREET), "--wait")
    assert done.code == 0
    assert "success" in done.out
    lines = read_until(worker, "success")
    assert ["running" in line for line in lines] == [True, False]


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
    [(["--priority", "101"], "-100<=x<=100"), (["--queue", "two\nlines"], "is not a queue's name")],
)
def test_what_cannot_be_queued_is_refused(cli: Cli, wrong: list[str], said: str) -> None:
    answer = cli.call("submit", cli.workflow(GREET), *wrong)
    assert answer.code == 2
    assert said in answer.err


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


@pytest.fixture
def broker(valkey_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    valkey_server.empty()
    monkeypatch.setenv("TENURE_POLL_INTERVAL", "7s")
    return valkey_server


def test_a_hint_goes_from_one_process_to_another(cli: Cli, broker: Server) -> None:
    """The worker has looked, and will not look again for long."""
    worker = cli.start("up", "--broker", broker.url)
    with broker.client() as client:
        while not client.info("clients")["blocked_clients"]:
            assert worker.poll() is None
        submitted = cli.call("submit", cli.workflow(GREET), "--broker", broker.url)
        assert submitted.code == 0
        read_until(worker, "success")
        assert client.xlen("tenure:hints:default") == 0
    worker.send_signal(signal.SIGTERM)
    assert finish(worker).code == 0


def test_a_submit_whose_broker_does_not_answer_says_which_and_for_how_long(cli: Cli) -> None:
    with Server() as frozen:
        frozen.freeze()
        url = frozen.url.replace("//", "//me:opensesame@")
        submitted = cli.call("submit", cli.workflow(GREET), "--broker", url)
    assert submitted.code == 0
    shown = frozen.url.replace("//", "//me:***@")
    assert f"the broker {shown} did not answer for 2 s" in submitted.err
    assert "opensesame" not in submitted.out + submitted.err


def test_a_worker_refuses_a_broker_that_cannot_be_meant(cli: Cli) -> None:
    answer = cli.call("worker", "--broker", "carrier-pigeon:loft")
    assert answer.code != 0
    assert "no broker kind 'carrier-pigeon'" in answer.err


class TestDoctor:
    def test_says_that_it_is_away_and_what_that_costs(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TENURE_BROKER", "redis://me:opensesame@127.0.0.1:1/0")
        answer = cli.call("doctor")
        assert answer.code == 1
        assert "redis://me:***@127.0.0.1:1/0" in answer.out
        assert "workers find runs by looking, up to 50ms later" in answer.out
        assert "opensesame" not in answer.out + answer.err
