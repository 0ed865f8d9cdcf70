"""``tenure gateway`` and the one of ``tenure up``, as processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tenure.cli import serve
from tests.cli.conftest import Cli, finish, read_until
from tests.cli.flows import GREET, WAIT
from tests.free_port import free_port

pytestmark = pytest.mark.slow


def address_of(process: subprocess.Popen[str]) -> str:
    said: dict[str, str] = json.loads(read_until(process, "address")[-1])
    return urlsplit(said["address"]).netloc


def ask(
    place: str, method: str, path: str, body: Any = None, token: str | None = None
) -> tuple[int, Any]:
    connection = HTTPConnection(place, timeout=30)
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, json.loads(data) if data else None


def test_a_run_is_submitted_to_the_gateway_and_executed_by_a_worker(cli: Cli) -> None:
    gateway = cli.start("gateway", "--json", "--listen", "127.0.0.1:0")
    place = address_of(gateway)
    status, run = ask(place, "POST", "/v1/runs", {"workflow": GREET})
    assert status == 201
    worker = cli.start("worker", "--json")
    read_until(worker, "run.success")
    assert ask(place, "GET", f"/v1/runs/{run['run_id']}")[1]["status"] == "success"
    gateway.send_signal(signal.SIGTERM)
    assert finish(gateway).code == 0


def test_up_serves_the_store_its_worker_executes(cli: Cli) -> None:
    """Also one that lives in the process itself."""
    place = f"127.0.0.1:{free_port()}"
    up = cli.start("up", "--json", "--store", "memory:", "--listen", place)
    status = 0
    while not status:
        try:
            status, _ = ask(place, "POST", "/v1/runs", {"workflow": GREET})
        except ConnectionRefusedError:
            assert up.poll() is None
    assert status == 201
    read_until(up, "run.success")
    with urlopen(f"http://{place}/metrics", timeout=30) as numbers:
        assert b"tenure_claims_total 1.0" in numbers.read(), "its worker's doings are counted too"
    up.send_signal(signal.SIGTERM)
    assert finish(up).code == 0


@pytest.mark.parametrize("command", ["gateway", "up"])
def test_a_gateway_is_no_store_for_a_gateway(cli: Cli, command: str) -> None:
    """Whoever asked the second would ask the first with the token of the second."""
    refused = cli.call(command, "--store", "http://127.0.0.1:9", "--listen", "127.0.0.1:0")
    assert refused.code == 7
    assert "name the store behind the gateway at http://127.0.0.1:9" in refused.err


def test_two_gateways_of_one_store_know_the_same_tokens_and_runs(cli: Cli) -> None:
    token = cli.call("token", "create", "ci", "--role", "operator").out.strip()
    places = [
        address_of(cli.start("gateway", "--json", "--listen", "127.0.0.1:0")) for _ in range(2)
    ]
    status, run = ask(places[0], "POST", "/v1/runs", {"workflow": GREET}, token)
    assert status == 201
    path = f"/v1/runs/{run['run_id']}"
    assert ask(places[1], "GET", path)[0] == 401
    assert ask(places[1], "GET", path, token=token)[0] == 200
    cli.call("token", "revoke", "ci")
    for place in places:
        while (status := ask(place, "GET", path, token=token)[0]) != 401:
            assert status in (200, 429)  # for a second; who asks that often may have to wait


def test_an_operator_cancels_through_a_gateway_while_others_execute(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look after what others left is the gateway's, and more than an operator may."""
    tokens = {
        role: cli.call("token", "create", role, "--role", role).out.strip()
        for role in ("operator", "worker")
    }
    place = address_of(cli.start("gateway", "--json", "--listen", "127.0.0.1:0"))
    body = {"workflow": GREET, "options": {"recovery": "interrupt"}}
    held, wanted = (
        ask(place, "POST", "/v1/runs", body, tokens["operator"])[1]["run_id"] for _ in range(2)
    )
    lease = {"owner_id": "somebody", "lease_seconds": 60}
    assert ask(place, "POST", f"/v1/runs/{held}/lease", lease, tokens["worker"])[0] == 200
    monkeypatch.setenv("TENURE_TOKEN", tokens["operator"])
    answer = cli.call("cancel", wanted, "--store", f"http://{place}", "--json")
    assert (answer.code, answer.json["status"]) == (0, "canceled")
    events = ask(place, "GET", f"/v1/runs/{wanted}/events", token=tokens["operator"])[1]["events"]
    assert events[-1]["data"] == {"by": "operator"}


def test_beyond_this_machine_it_serves_only_those_with_tokens(cli: Cli) -> None:
    refused = cli.process("gateway", "--listen", "0.0.0.0:0")
    assert refused.code == 7
    assert "there are no tokens" in refused.err
    assert "tenure token create" in refused.err
    cli.call("token", "create", "ci", "--role", "viewer")
    place = address_of(cli.start("gateway", "--json", "--listen", "0.0.0.0:0"))
    port = place.rpartition(":")[2]
    assert ask(f"127.0.0.1:{port}", "GET", "/v1/runs")[0] == 401
    assert ask(f"127.0.0.1:{port}", "GET", "/healthz")[0] == 200


def test_told_so_explicitly_it_serves_anyone(cli: Cli) -> None:
    gateway = cli.start("gateway", "--json", "--listen", "0.0.0.0:0", "--allow-anyone")
    port = address_of(gateway).rpartition(":")[2]
    assert ask(f"127.0.0.1:{port}", "GET", "/v1/runs")[0] == 200


def test_an_address_that_is_taken_is_named(cli: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = "{}:{}".format(*taken.getsockname())
        answer = cli.process("gateway", "--listen", place, "--json")
    assert answer.code == 6
    error = json.loads(answer.err.splitlines()[-1])["error"]
    assert error["type"] == "cannot-listen"
    assert place in error["message"]


def test_an_answer_under_way_is_given_before_the_process_ends(cli: Cli) -> None:
    gateway = cli.start("gateway", "--json", "--listen", "127.0.0.1:0")
    host, _, port = address_of(gateway).rpartition(":")
    body = json.dumps({"workflow": GREET}).encode()
    with socket.create_connection((host, int(port)), timeout=30) as slow:
        slow.sendall(
            b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nexpect: 100-continue\r\n\r\n" % len(body)
        )
        assert slow.recv(1000).startswith(b"HTTP/1.1 100")
        gateway.send_signal(signal.SIGTERM)
        slow.sendall(body)
        assert slow.recv(1000).startswith(b"HTTP/1.1 201")
    assert finish(gateway).code == 0


def test_without_its_packages_it_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_NEEDED", ("uvicorn", "not_installed_here"))
    answer = cli.call("gateway")
    assert answer.code == 2
    assert "it needs not_installed_here: pip install 'tenure[gateway]'" in answer.err


def test_it_listens_on_the_newer_loopback_too(cli: Cli) -> None:
    place = address_of(cli.start("gateway", "--json", "--listen", "[::1]:0"))
    assert place.startswith("[::1]:")
    assert ask(place, "GET", "/v1/runs")[0] == 200


def test_a_run_is_canceled_through_the_gateway_by_who_may_not_look_at_all_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway looks for abandoned runs: who cancels one need not."""
    gateway = cli.start("gateway", "--json", "--listen", "127.0.0.1:0")
    place = address_of(gateway)
    worker = cli.start("worker", "--json")
    run_id = cli.call("submit", cli.workflow(WAIT), "--var", "gate=/nowhere").out.strip()
    read_until(worker, "host.running")
    token = cli.call("token", "create", "ci", "--role", "operator", "--queue", "default", "--json")
    monkeypatch.setenv("TENURE_TOKEN", token.json["token"])
    canceled = cli.call("cancel", run_id, "--store", f"http://{place}")
    assert (canceled.code, canceled.err) == (0, "")
    assert f"process {worker.pid} on " in canceled.out
    read_until(worker, "run.canceled")
