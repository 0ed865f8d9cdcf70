"""``tenure gateway`` and the one of ``tenure up``, as processes; tokens; and what processes say for
programs (``log_format = "json"``)."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tenure.aio import about
from tenure.cli import serve
from tenure.cli.logging import described
from tenure.model.tokens import Token, bearer_of
from tenure.stores.sqlite import SQLiteStore
from tests.cli.conftest import Cli, finish, read_until
from tests.cli.flows import GREET
from tests.free_port import free_port


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


@pytest.mark.slow
def test_a_run_is_submitted_to_the_gateway_and_executed_by_a_worker(cli: Cli) -> None:
    gateway = cli.start("gateway", "--json", "--no-token", "--listen", "127.0.0.1:0")
    place = address_of(gateway)
    status, run = ask(place, "POST", "/v1/runs", {"workflow": GREET})
    assert status == 201
    worker = cli.start("worker", "--json")
    read_until(worker, "run.success")
    assert ask(place, "GET", f"/v1/runs/{run['run_id']}")[1]["status"] == "success"
    gateway.send_signal(signal.SIGTERM)
    assert finish(gateway).code == 0


@pytest.mark.slow
def test_up_serves_the_store_its_worker_executes(cli: Cli) -> None:
    """Also one that lives in the process itself."""
    place = f"127.0.0.1:{free_port()}"
    up = cli.start("up", "--json", "--no-token", "--store", "memory:", "--listen", place)
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


@pytest.mark.slow
@pytest.mark.parametrize("command", ["gateway", "up"])
def test_a_gateway_is_no_store_for_a_gateway(cli: Cli, command: str) -> None:
    """Whoever asked the second would ask the first with the token of the second."""
    refused = cli.call(command, "--store", "http://127.0.0.1:9", "--listen", "127.0.0.1:0")
    assert refused.code == 7
    assert "name the store behind the gateway at http://127.0.0.1:9" in refused.err


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_address_that_is_taken_is_named(cli: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = "{}:{}".format(*taken.getsockname())
        answer = cli.call("gateway", "--listen", place, "--json")
    assert answer.code == 6
    error = json.loads(answer.err.splitlines()[-1])["error"]
    assert error["type"] == "cannot-listen"
    assert place in error["message"]


@pytest.mark.slow
def test_an_answer_under_way_is_given_before_the_process_ends(cli: Cli) -> None:
    gateway = cli.start("gateway", "--json", "--no-token", "--listen", "127.0.0.1:0")
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


@pytest.mark.slow
def test_without_its_packages_it_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_NEEDED", ("uvicorn", "not_installed_here"))
    answer = cli.call("gateway")
    assert answer.code == 2
    assert "it needs not_installed_here: pip install 'tenure[gateway]'" in answer.err


SECRET = "tenure_hunter2"


def test_line_says_which_run_it_is_about() -> None:
    record = logging.makeLogRecord({"msg": "lost %s", "args": ("it",), "levelname": "WARNING"})
    with about("run-000001"):
        said = described(record)
    assert (said["run_id"], said["message"], said["level"]) == ("run-000001", "lost it", "warning")
    assert "run_id" not in described(record)


@pytest.mark.slow
def test_each_line_of_a_gateway_is_an_object_and_says_who_made_which_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = cli.call("token", "create", "ci", "--role", "operator").out.strip()
    monkeypatch.setenv("TENURE_LOG_FORMAT", "json")
    gateway = cli.start("gateway")
    assert gateway.stderr is not None
    opening = json.loads(gateway.stderr.readline())
    address = opening["message"].partition(" at ")[2].partition(";")[0]
    body = json.dumps({"workflow": GREET}).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    with urlopen(Request(f"{address}/v1/runs", body, headers)) as answer:
        made = json.load(answer)
    with pytest.raises(HTTPError):
        urlopen(Request(f"{address}/v1/runs/x?label=password={SECRET}", headers=headers))
    gateway.send_signal(signal.SIGTERM)
    said = finish(gateway).err
    assert SECRET not in said
    assert token not in said
    lines = [json.loads(line) for line in said.splitlines()]
    asked = next(line for line in lines if line["logger"] == "tenure.gateway.requests")
    assert (asked["caller"], asked["run_id"], asked["status"]) == ("ci", made["run_id"], 201)


STORE = ("--store", "sqlite:///runs.db")


async def tokens_of(path: Path) -> list[Token]:
    async with await SQLiteStore.open(path) as store:
        return await store.list_tokens()


def test_a_token_is_shown_once_and_kept_as_a_digest(cli: Cli) -> None:
    text = cli.call("token", "create", "ci", "--role", "operator", *STORE).out.strip()
    (kept,) = asyncio.run(tokens_of(cli.folder / "runs.db"))
    secret = text.rpartition("_")[2]
    assert bearer_of(text, [kept]) is kept
    assert len(secret) >= 43
    listed = cli.call("token", "list", "--json", *STORE)
    assert secret not in listed.out
    assert kept.digest.hex() not in listed.out
    (shown,) = listed.json["tokens"]
    assert (shown["name"], shown["role"], shown["queues"]) == ("ci", "operator", None)
    assert shown["state"] == "valid"
    for path in cli.folder.iterdir():
        if path.is_file():
            assert secret.encode() not in path.read_bytes()


def test_a_token_may_be_limited_in_time_and_to_queues(cli: Cli) -> None:
    made = cli.call(
        "token", "create", "web", "--role", "viewer", "--queue", "a", "--queue", "b",
        "--expires", "1h", "--json", *STORE,
    ).json  # fmt: skip
    assert made["queues"] == ["a", "b"]
    assert made["token"].startswith("tenure_")
    assert made["created_at"] < made["expires_at"]
    assert "a, b" in cli.call("token", "list", *STORE).out


def test_a_token_is_revoked_by_name_by_id_or_by_itself(cli: Cli) -> None:
    texts = {
        name: cli.call("token", "create", name, "--role", "admin", "--json", *STORE).json
        for name in ("first", "second", "third")
    }
    for word in ("first", texts["second"]["id"], texts["third"]["token"]):
        assert cli.call("token", "revoke", word, *STORE).code == 0
    states = {each["state"] for each in cli.call("token", "list", "--json", *STORE).json["tokens"]}
    assert states == {"revoked"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create", "x y", "--role", "admin"), 2, "letters, digits"),
        (("create", "x", "--role", "king"), 2, "king"),
        (("create", "x"), 2, "--role"),
        (("create", "x", "--role", "admin", "--expires", "2000-01-01T00:00Z"), 2, "in the past"),
        (("revoke", "nobody"), 5, "no token has the id or name 'nobody'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    cli: Cli, arguments: tuple[str, ...], code: int, said: str
) -> None:
    cli.call("token", "create", "one", "--role", "viewer", *STORE)
    answer = cli.call("token", *arguments, *STORE)
    assert answer.code == code
    assert said in answer.err
