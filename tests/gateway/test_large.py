"""Runs of many hosts: a small request may not make an answer that stops the gateway."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.gateway.answers import CHUNK_BYTES, hosts_in
from tenure.gateway.calls import Limits
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.update import NewRun
from tenure.stores.memory import InMemoryStore
from tenure.system import new_update_id
from tests.gateway.conftest import stored
from tests.gateway.house import Client, House

LIMITS = Limits(
    rate=0, run_tasks=20_000, large_answers=3, large_answers_of_one=2, send_seconds=0.5,
    claimed_hosts=10_000,
)  # fmt: skip


def wide(hosts: int, steps: int, **step: Any) -> dict[str, Any]:
    names = {f"web{number}": {"address": "local"} for number in range(hosts)}
    echo = {"action": "cmd.run", "args": {"cmd": "echo hello"}}
    return {
        "version": "v1",
        "name": "wide",
        "inventory": {"hosts": names},
        "steps": [{"name": f"step {number}", **echo, **step} for number in range(steps)],
    }


@pytest.fixture(scope="module")
def small_house() -> Iterator[House]:
    with House(InMemoryStore(), limits=LIMITS) as house:
        yield house


@pytest.fixture
def client(small_house: House) -> Iterator[Client]:
    client = small_house.client(small_house.tokens()["admin"])
    yield client
    client.close()


def submitted(client: Client, hosts: int, steps: int, **options: Any) -> str:
    answer = client.post("/v1/runs", {"workflow": wide(hosts, steps), "options": options})
    assert answer.status == 201, answer
    return str(answer.json["run_id"])


@pytest.mark.parametrize(
    ("hosts", "steps", "step"),
    [
        (201, 100, {}),
        (101, 2, {"loop": list(range(100))}),
        (201, 1, {"loop": "${{ '" + "a," * 99 + "' | split(',') }}"}),
    ],
)
def test_more_tasks_than_the_setting_allows_are_refused(
    client: Client, hosts: int, steps: int, step: dict[str, Any]
) -> None:
    answer = client.post("/v1/runs", {"workflow": wide(hosts, steps, **step)})
    assert (answer.status, answer.problem) == (422, "invalid-workflow")
    (mistake,) = answer.json["mistakes"]
    assert "more than 20,000 tasks" in mistake["message"]
    assert "gateway_run_tasks" in mistake["hint"]


def test_hosts_left_out_are_not_counted(client: Client) -> None:
    options = {"limit": ["web1"]}
    assert client.post("/v1/runs", {"workflow": wide(201, 100), "options": options}).status == 201


def test_a_new_run_is_answered_with_its_summary(client: Client) -> None:
    made = client.post("/v1/runs", {"workflow": wide(100, 10)})
    assert len(made.body) < 2_000
    assert made.json["counts"]["hosts_total"] == 1000
    assert "steps" not in made.json
    assert "vars" not in made.json


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_large_record_is_shown_whole_in_pieces(
    small_house: House, client: Client, encoding: str
) -> None:
    run_id = submitted(client, 1000, 3, vars={"steps": [], "hosts": {}})
    answer = client.get(f"/v1/runs/{run_id}", accept_encoding=encoding)
    assert "content-length" not in answer.headers
    body = gzip.decompress(answer.body) if encoding else answer.body
    kept = stored(small_house, run_id)
    shown = json.loads(body)
    assert hosts_in(kept) == 3000
    assert [len(step["hosts"]) for step in shown["steps"]] == [1000] * 3
    assert shown["steps"][2]["hosts"]["web999"]["status"] == "pending"
    assert shown["vars"] == {"steps": [], "hosts": {}}
    few = client.get(f"/v1/runs/{submitted(client, 1, 1)}").json
    assert set(shown) == set(few)
    assert set(shown["steps"][0]) == set(few["steps"][0])
    assert set(shown["steps"][0]["hosts"]["web0"]) == set(few["steps"][0]["hosts"]["web0"])
    assert client("HEAD", f"/v1/runs/{run_id}").body == b""


def unread(house: House, path: str, token: str) -> socket.socket:
    """A request whose answer is not taken."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", house.port))
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n".encode()
    )
    assert connection.recv(9) == b"HTTP/1.1 "
    return connection


def read_to_the_end(connection: socket.socket) -> None:
    while connection.recv(CHUNK_BYTES):
        pass


@pytest.mark.slow
def test_a_client_that_does_not_read_is_dropped_and_no_other_waits(
    small_house: House, client: Client
) -> None:
    path = f"/v1/runs/{submitted(client, 2000, 10)}"
    viewer, other = small_house.tokens()["viewer"], small_house.client(small_house.token("viewer"))
    lazy = [unread(small_house, path, viewer) for _ in range(LIMITS.large_answers_of_one)]
    mine = small_house.client(viewer)
    refused = mine.get(path)
    assert (refused.status, refused.problem) == (503, "busy")
    assert mine.get("/v1/runs?limit=1").status == 200, "what is small is answered"
    assert len(other.get(path).json["steps"]) == 10, "another token has its own share"
    while mine.get(path).status == 503:
        time.sleep(0.05)
    time.sleep(4)  # without taking anything: by then the system has ended the connections
    for connection in lazy:
        with pytest.raises(ConnectionResetError):
            read_to_the_end(connection)
        connection.close()
    mine.close()
    other.close()


@pytest.mark.slow
def test_definitions_with_large_files_count_among_large_answers(
    small_house: House, client: Client
) -> None:
    copy = {"action": "file.copy", "args": {"src": "large", "dest": "/tmp/large"}}
    workflow = {**wide(1, 1), "steps": [{"name": "copy", **copy}]}
    files = {"large": base64.b64encode(bytes(8 << 20)).decode()}
    made = client.post("/v1/runs", {"workflow": workflow, "files": files})
    assert made.status == 201, made
    path = f"/v1/runs/{made.json['run_id']}/definition"
    worker = small_house.token("worker", "reads slowly")
    lazy = [unread(small_house, path, worker) for _ in range(LIMITS.large_answers_of_one)]
    mine = small_house.client(worker)
    assert mine.get(path).problem == "busy"
    while mine.get(path).status == 503:
        time.sleep(0.05)
    mine.close()
    for connection in lazy:
        connection.close()


@pytest.mark.slow
def test_others_are_answered_while_a_large_record_is_written(
    small_house: House, client: Client
) -> None:
    path = f"/v1/runs/{submitted(client, 2000, 10)}"
    done = threading.Event()
    longest = 0.0

    def watch() -> None:
        nonlocal longest
        healthy = small_house.client()
        while not done.is_set():
            began = time.monotonic()
            assert healthy.get("/healthz").status == 200
            longest = max(longest, time.monotonic() - began)
        healthy.close()

    watching = threading.Thread(target=watch)
    watching.start()
    began = time.monotonic()
    for _ in range(3):
        client.get(path)
    took = time.monotonic() - began
    done.set()
    watching.join()
    assert longest < took / 3, (longest, took)


def test_a_claim_is_answered_with_few_large_runs(client: Client) -> None:
    runs = {submitted(client, 2000, 2, queue="large") for _ in range(4)}
    claim = {"owner_id": "w1", "lease_seconds": 60, "queues": ["large"], "limit": 10}
    first = client.post("/v1/claims", {**claim, "claim_id": "c1"}).json["leases"]
    assert len(first) == 2
    again = client.post("/v1/claims", {**claim, "claim_id": "c1"}).json["leases"]
    assert [each["run_id"] for each in again] == [each["run_id"] for each in first], "sent again"
    more = client.post("/v1/claims", {**claim, "claim_id": "c2"}).json["leases"]
    assert {each["run_id"] for each in (*first, *more)} == runs
    assert [len(step["hosts"]) for step in first[0]["snapshot"]["steps"]] == [2000, 2000]
    assert {"definition_digest", "expires_at", "fence"} < set(first[0])
    large = submitted(client, 2000, 10, queue="large")
    submitted(client, 2000, 10, queue="large")
    (one,) = client.post("/v1/claims", claim).json["leases"]
    assert one["run_id"] == large
    assert len(one["snapshot"]["steps"]) == 10


def test_a_retry_of_a_run_that_is_too_large_is_refused(small_house: House, client: Client) -> None:
    """It came into the store by another way."""
    name = "came-otherwise"
    hosts = {f"web{number}": HostState() for number in range(20_001)}
    steps = (StepState(index=0, name="all", hosts=hosts),)
    run = RunSnapshot(run_id=name, workflow_name="wide", steps=steps)
    small_house.run(small_house.store.create_run(NewRun(snapshot=run, update_id=new_update_id())))
    answer = client.post(f"/v1/runs/{name}/retry", {})
    assert (answer.status, answer.problem) == (422, "invalid-options")
    assert "more than 20,000 tasks" in answer.json["problems"][0]
