"""Requests that cost too much: too large, too deep, too slow, too many."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from tenure.gateway.answers import takes_gzip
from tenure.gateway.auth import Rates
from tenure.gateway.calls import Limits
from tenure.stores.memory import InMemoryStore
from tests.gateway.house import Client, House

pytestmark = pytest.mark.slow

HURRY = Limits(body_seconds=0.2, rate=0, all_bodies=1 << 21)
PATIENCE = 10.0
"""Seconds in which the gateway must have done what its limits say; much longer than those."""
NOTE = "/v1/runs/no-such-run/annotate"
HEAD = b"POST /v1/runs/no-such-run/annotate HTTP/1.1\r\nhost: localhost\r\n"
JSON = b"content-type: application/json\r\n"


@pytest.fixture(scope="module")
def hasty() -> Iterator[House]:
    """With little patience and little room."""
    with House(InMemoryStore(), HURRY, no_token=True) as house:
        yield house


@pytest.fixture
def wire(hasty: House) -> Iterator[socket.socket]:
    with hasty.raw() as connection:
        connection.settimeout(PATIENCE)
        yield connection


def all_of(connection: socket.socket) -> bytes:
    """Until the gateway closes the connection."""
    data = b""
    while part := connection.recv(65536):
        data += part
    return data


def test_a_body_that_is_too_large_is_not_even_read(operator: Client) -> None:
    answer = operator("POST", NOTE, data=b" " * (1 << 20) + b" ")
    assert (answer.status, answer.problem) == (413, "too-large")


def test_a_body_that_grows_too_large_on_its_way_is_cut_off(wire: socket.socket) -> None:
    wire.sendall(HEAD + JSON + b"transfer-encoding: chunked\r\n\r\n")
    for _ in range(17):
        wire.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    assert b"413" in wire.recv(65536)


def test_a_deep_body_is_refused_however_deep(operator: Client) -> None:
    for deep in (5_000, 200_000):
        body = b'{"data": {"a": ' + b"[" * deep + b"]" * deep + b"}}"
        answer = operator("POST", NOTE, data=body, headers={"content-type": "application/json"})
        assert (answer.status, answer.problem) == (400, "malformed"), deep


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[]", b"null", b'{"data": NaN}', b'{"data": {}} x', b'"data"']
)
def test_what_is_no_json_of_the_right_shape_is_refused(operator: Client, body: bytes) -> None:
    answer = operator("POST", NOTE, data=body, headers={"content-type": "application/json"})
    assert (answer.status, answer.problem) == (400, "malformed")


def test_a_body_that_never_comes_is_not_waited_for(wire: socket.socket) -> None:
    wire.sendall(HEAD + JSON + b"content-length: 10\r\n\r\n{")
    said = all_of(wire)
    assert said.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within" in said


def test_a_header_that_decides_must_not_come_twice(wire: socket.socket) -> None:
    wire.sendall(b"GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n")
    said = wire.recv(65536)
    assert said.startswith(b"HTTP/1.1 400 ")
    while b"the header host came more than once" not in said:
        more = wire.recv(65536)
        assert more, said
        said += more


@pytest.mark.parametrize("line", [b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_what_is_no_request_is_refused_and_harms_no_other(hasty: House, line: bytes) -> None:
    with hasty.raw() as connection:
        connection.sendall(line)
        assert all_of(connection).startswith(b"HTTP/1.1 400 ")
    client = hasty.client()
    assert client.get("/healthz").status == 200
    client.close()


def test_beyond_its_connections_requests_are_refused() -> None:
    with House(InMemoryStore(), Limits(rate=0, connections=3), no_token=True) as house:
        with house.raw(), house.raw(), house.raw():
            client = house.client()
            assert client.get("/v1/runs").status == 503
            client.close()
        client = house.client()
        while client.get("/v1/runs").status == 503:  # until those that went are noticed
            client.close()
            client = house.client()
        client.close()


def test_all_bodies_at_once_have_a_limit() -> None:
    limits = Limits(rate=0, all_bodies=100_000)
    with (
        House(InMemoryStore(), limits, no_token=True) as house,
        house.raw() as first,
        house.raw() as second,
    ):
        for connection in (first, second):
            connection.settimeout(PATIENCE)
        first.sendall(HEAD + JSON + b"content-length: 90000\r\n\r\n" + b" " * 80_000)
        second.sendall(HEAD + JSON + b"content-length: 90000\r\n\r\n" + b" " * 80_000)
        answered, _, _ = select.select([first, second], [], [], PATIENCE)
        assert b"HTTP/1.1 503 " in answered[0].recv(65536)


def test_who_asks_too_often_is_told_when_to_come_again() -> None:
    with House(InMemoryStore(), Limits(rate=1, burst=3), no_token=True) as house:
        client = house.client()
        answers = [client.get("/v1/runs") for _ in range(6)]
        assert [answer.status for answer in answers][:3] == [200, 200, 200]
        last = answers[-1]
        assert (last.status, last.problem) == (429, "too-many-requests")
        assert int(last.headers["retry-after"]) >= 1
        assert [client.get("/healthz").status for _ in range(6)] == [200] * 6
        client.close()


def test_whoever_guesses_tokens_slows_down_nobody_else() -> None:
    with House(InMemoryStore(), Limits(rate=0.001, burst=3), no_token=True) as house:
        good, bad = house.client(house.token("viewer")), house.client("tenure_none_guessed")
        guessed = [bad.get("/v1/runs").status for _ in range(6)]
        assert guessed == [401, 401, 401, 429, 429, 429]
        assert [good.get("/v1/runs").status for _ in range(3)] == [200, 200, 200]
        good.close()
        bad.close()


def test_a_bucket_fills_at_its_rate_and_no_further_than_its_brim() -> None:
    now = 0.0
    rates = Rates(2.0, 3.0, lambda: now)
    assert [rates.wait("a") for _ in range(3)] == [0.0] * 3
    assert rates.wait("a") == pytest.approx(0.5)
    assert rates.wait("b") == 0.0, "others have buckets of their own"
    now = 0.5
    assert rates.wait("a") == 0.0
    assert rates.wait("a") == pytest.approx(0.5)
    now = 1000.0
    assert [rates.wait("a") > 0 for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("said", "wants"),
    [
        ("", False), ("identity", False), ("gzip", True), ("br, GZIP;q=0.5", True), ("*", True),
        ("gzip;q=0", False), ("gzip ; q=0.0", False), ("xgzip", False),
    ],
)  # fmt: skip
def test_compression_is_for_those_who_ask(said: str, wants: bool) -> None:
    assert takes_gzip(said) is wants
