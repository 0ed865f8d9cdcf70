"""Requests that cost too much: too large, too deep, too slow, too many."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tenure.gateway.answering import takes_gzip
from tenure.gateway.parts import Limits
from tenure.gateway.rates import Rates
from tenure.stores.memory import InMemoryStore
from tests.gateway.house import Client, House

pytestmark = pytest.mark.slow

HURRY = Limits(body_seconds=0.2, header_seconds=0.2, header_bytes=8192, rate=0, all_bodies=1 << 21)
PATIENCE = 10.0
"""Seconds in which the gateway must have done what its limits say; much longer than those."""
NOTE = "/v1/runs/no-such-run/annotate"
HEAD = b"POST /v1/runs/no-such-run/annotate HTTP/1.1\r\nhost: localhost\r\n"
JSON = b"content-type: application/json\r\n"


@pytest.fixture(scope="module")
def hasty() -> Iterator[House]:
    """With little patience and little room."""
    with House(InMemoryStore(), HURRY) as house:
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


def test_headers_that_never_end_are_not_waited_for(wire: socket.socket) -> None:
    wire.sendall(HEAD + b"x-slow: ")
    assert all_of(wire) == b""


def test_nor_are_those_of_the_next_request(wire: socket.socket) -> None:
    wire.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert wire.recv(65536).startswith(b"HTTP/1.1 200")
    wire.sendall(HEAD + b"x-slow: ")
    assert all_of(wire) == b""


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nfffff\r\n",
    ],
    ids=["that no handler reads", "that nobody expects"],
)
def test_a_body_may_not_drip_in(wire: socket.socket, head: bytes) -> None:
    """Every byte would keep the connection alive a little longer."""
    wire.sendall(head)
    wire.settimeout(0.05)
    with suppress(ConnectionError):
        for _ in range(200):
            with suppress(TimeoutError):
                if not wire.recv(65536):
                    return
            wire.sendall(b"x")
        pytest.fail("it is still received")


def test_an_answer_that_nobody_takes_is_dropped() -> None:
    limits = Limits(rate=0, idle_seconds=1, connections=1)
    with House(InMemoryStore(), limits) as house, house.raw() as connection:
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 400)
        assert not _serves_another(house)
        for _ in range(int(PATIENCE / 0.05)):
            if _serves_another(house):
                return
            select.select([], [], [], 0.05)
        pytest.fail("it still waits for somebody to take it")


def _serves_another(house: House) -> bool:
    client = house.client()
    status = client.get("/v1/runs").status
    client.close()
    return status == 200


def test_a_connection_that_says_nothing_is_closed(wire: socket.socket) -> None:
    assert all_of(wire) == b""


def test_a_flood_of_headers_is_cut_off(wire: socket.socket) -> None:
    wire.sendall(HEAD + b"x-flood: yes\r\n" * 1000)
    assert all_of(wire).startswith(b"HTTP/1.1 431 ")


def test_a_header_that_decides_must_not_come_twice(wire: socket.socket) -> None:
    wire.sendall(b"GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n")
    said = wire.recv(65536)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"the header host came more than once" in said


@pytest.mark.parametrize("pieces", [1, 20])
def test_headers_that_end_may_be_too_large_too(wire: socket.socket, pieces: int) -> None:
    request = HEAD + b"x-large: " + b"x" * 9000 + b"\r\n\r\n"
    size = -(-len(request) // pieces)
    for start in range(0, len(request), size):
        wire.sendall(request[start : start + size])
    said = all_of(wire)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b"application/problem+json" in said
    assert b":headers-too-large" in said


def test_who_is_refused_may_finish_and_reads_why(wire: socket.socket) -> None:
    """Whoever writes to a connection that is closed is told just that, and reads no answer."""
    wire.sendall(HEAD + b"x-large: " + b"x" * 9000)
    wire.recv(1, socket.MSG_PEEK)
    for _ in range(5):
        wire.sendall(b"x" * 1000)
    assert all_of(wire).startswith(b"HTTP/1.1 431 ")


def test_one_endless_header_is_cut_off(wire: socket.socket) -> None:
    wire.sendall(b"GET /" + b"a" * 9000)
    assert all_of(wire).startswith(b"HTTP/1.1 431 ")


def test_who_is_quick_is_served_however_often(hasty: House) -> None:
    """The clock for headers begins anew with each request of a connection."""
    client = hasty.client()
    assert [client.get("/healthz").status for _ in range(50)] == [200] * 50
    client.close()


@pytest.mark.parametrize("line", [b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\r\n" * 99])
def test_what_is_no_request_gets_no_more_than_a_word(hasty: House, line: bytes) -> None:
    with hasty.raw() as connection:
        connection.sendall(line)
        said = all_of(connection)
    if said:
        assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"application/problem+json" in said
        assert b"x-content-type-options: nosniff" in said
    client = hasty.client()
    assert client.get("/healthz").status == 200
    client.close()


def test_an_upgrade_is_not_made_and_fills_no_log(
    hasty: House, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade = b"host: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    with hasty.raw() as connection:
        connection.settimeout(PATIENCE)
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + upgrade)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert not caplog.records


def test_beyond_its_connections_it_still_says_that_it_lives() -> None:
    with House(InMemoryStore(), Limits(rate=0, connections=3)) as house:
        with house.raw(), house.raw(), house.raw():
            client = house.client()
            busy = client.get("/v1/runs")
            assert (busy.status, busy.problem) == (503, "busy")
            assert int(busy.headers["retry-after"]) >= 1
            client.close()
            client = house.client()
            assert client.get("/healthz").status == 200
            client.close()
        client = house.client()
        while client.get("/v1/runs").status == 503:  # until those that went are noticed
            client.close()
            client = house.client()
        client.close()


def test_all_bodies_at_once_have_a_limit() -> None:
    limits = Limits(rate=0, all_bodies=100_000)
    with House(InMemoryStore(), limits) as house, house.raw() as first, house.raw() as second:
        for connection in (first, second):
            connection.settimeout(PATIENCE)
        first.sendall(HEAD + JSON + b"content-length: 90000\r\n\r\n" + b" " * 80_000)
        second.sendall(HEAD + JSON + b"content-length: 90000\r\n\r\n" + b" " * 80_000)
        answered, _, _ = select.select([first, second], [], [], PATIENCE)
        assert b"HTTP/1.1 503 " in answered[0].recv(65536)


def test_who_asks_too_often_is_told_when_to_come_again() -> None:
    with House(InMemoryStore(), Limits(rate=1, burst=3)) as house:
        client = house.client()
        answers = [client.get("/v1/runs") for _ in range(6)]
        assert [answer.status for answer in answers][:3] == [200, 200, 200]
        last = answers[-1]
        assert (last.status, last.problem) == (429, "too-many-requests")
        assert int(last.headers["retry-after"]) >= 1
        assert [client.get("/healthz").status for _ in range(6)] == [200] * 6
        client.close()


def test_whoever_guesses_tokens_slows_down_nobody_else() -> None:
    with House(InMemoryStore(), Limits(rate=0.001, burst=3)) as house:
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
