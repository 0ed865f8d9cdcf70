"""``log_format = "json"``: what processes say, for programs."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tenure.aio import about
from tenure.cli.logging import described
from tests.cli.conftest import Cli, finish
from tests.cli.flows import GREET

SECRET = "tenure_hunter2"
DRIVER_COMPLAINS = """
import logging
from tenure.cli.logging import show_warnings
show_warnings(as_json={as_json})
logging.getLogger("psycopg").warning("query cancellation failed: cancellation timeout expired")
"""


def test_line_says_which_run_it_is_about() -> None:
    record = logging.makeLogRecord({"msg": "lost %s", "args": ("it",), "levelname": "WARNING"})
    with about("run-000001"):
        said = described(record)
    assert (said["run_id"], said["message"], said["level"]) == ("run-000001", "lost it", "warning")
    assert "run_id" not in described(record)


def test_line_has_the_facts_that_came_with_it() -> None:
    facts = {"status": 200, "run_id": None}
    assert described(logging.makeLogRecord({"msg": "x", "facts": facts}))["status"] == 200


@pytest.mark.slow
def test_worker_tells_of_its_runs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_LOG_FORMAT", "json")
    monkeypatch.setenv("TENURE_POLL_INTERVAL", "0.05s")
    worker = cli.start("worker", "--quiet")
    submitted = cli.process("submit", cli.workflow(GREET), "--wait", "--json")
    run_id = submitted.json_lines[0]["run_id"]
    worker.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in finish(worker).err.splitlines() if line.startswith("{")]
    assert {"run_id": run_id, "message": f"run {run_id}: success"}.items() <= next(
        line for line in lines if line["logger"] == "tenure.worker" and "run_id" in line
    ).items()


@pytest.mark.slow
def test_gateway_tells_of_requests_without_what_was_in_them(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_LOG_FORMAT", "json")
    gateway = cli.start("gateway", "--json")
    assert gateway.stdout is not None
    address = json.loads(gateway.stdout.readline())["address"]
    asked = f"{address}/v1/runs/no-such-run?label=password={SECRET}"
    with pytest.raises(HTTPError):
        urlopen(Request(asked, headers={"authorization": f"Bearer {SECRET}"}))
    gateway.send_signal(signal.SIGTERM)
    said = finish(gateway).err
    assert SECRET not in said
    requests = [json.loads(line) for line in said.splitlines() if "tenure.gateway.requests" in line]
    assert [(each["route"], each["run_id"]) for each in requests] == [
        ("/v1/runs/{run_id}", "no-such-run")
    ]


@pytest.mark.slow
def test_each_line_of_a_gateway_is_an_object_and_says_who_made_which_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_LOG_FORMAT", "json")
    token = cli.process("token", "create", "ci", "--role", "operator").out.strip()
    gateway = cli.start("gateway")
    assert gateway.stderr is not None
    opening = json.loads(gateway.stderr.readline())
    address = opening["message"].partition(" at ")[2].partition(";")[0]
    body = json.dumps({"workflow": GREET}).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    with urlopen(Request(f"{address}/v1/runs", body, headers)) as answer:
        made = json.load(answer)
    gateway.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in finish(gateway).err.splitlines()]
    asked = next(line for line in lines if line["logger"] == "tenure.gateway.requests")
    assert (asked["caller"], asked["run_id"], asked["status"]) == ("ci", made["run_id"], 201)


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_driver_complains_of_is_the_stores_to_say(as_json: bool) -> None:
    said = subprocess.run(
        [sys.executable, "-c", DRIVER_COMPLAINS.format(as_json=as_json)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stderr == ""
