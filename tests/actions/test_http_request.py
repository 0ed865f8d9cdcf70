"""Requests to a real server on this machine, and what its answers come to."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from tenure.actions import new_registry
from tenure.actions.http import MOST
from tenure.model.errors import InvalidArguments
from tenure.model.status import HostStatus
from tenure.ports.execution import CheckResult, TaskResult
from tenure.transports.routing import UnreachableTransport
from tests.actions.making import new_task
from tests.notifiers.receiver import Receiver
from tests.transports.keeping import Kept

NOWHERE = UnreachableTransport()


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with Receiver() as server:
        yield server
        await server.alone()


async def ask(url: str, kept: Kept | None = None, **args: Any) -> TaskResult:
    task = new_task("http.request", {"url": url, **args})
    return await new_registry()["http.request"].apply(task, NOWHERE, kept or Kept())


async def failed(url: str, kind: str = "http", **args: Any) -> str:
    result = await ask(url, **args)
    assert (result.status, result.kind, result.vars) == (HostStatus.FAILED, kind, {})
    return result.message or ""


def answering(value: Any, status: int = 200) -> str:
    return f"{status}?body={quote(json.dumps(value))}"


# -- what is sent ---------------------------------------------------------------------------------


async def test_a_plain_question(server: Receiver) -> None:
    kept = Kept()
    assert await ask(server.url("ok"), kept) == TaskResult(changed=False)
    [got] = server.received
    assert (got.method, got.path, got.body) == ("GET", "ok", b"")
    assert got.headers["user-agent"].startswith("tenure/")
    assert kept.stdout == b"HTTP 200 OK\nthanks\n"


async def test_what_is_sent_as_json(server: Receiver) -> None:
    value = {"a": [1, None, "é\n\"'"], "b": True}
    assert (await ask(server.url("ok"), json=value)).changed is None
    [got] = server.received
    assert (got.method, got.json) == ("POST", value)
    assert got.headers["content-type"] == "application/json"


async def test_what_is_sent_as_text(server: Receiver) -> None:
    headers = {"X-Count": 3, "X-On": True, "content-type": "text/csv"}
    await ask(server.url("ok"), method="PUT", body="a;é\n$(id)", headers=headers)
    [got] = server.received
    assert (got.method, got.body.decode()) == ("PUT", "a;é\n$(id)")
    assert (got.headers["x-count"], got.headers["x-on"]) == ("3", "true")
    assert got.headers["content-type"] == "text/csv"


@pytest.mark.parametrize(
    "args",
    [
        {"url": "ftp://x/y"},
        {"url": "http://"},
        {"url": "http://x/\r\nevil: 1"},
        {"headers": {"X-A": "1\r\nX-B: 2"}},
        {"body": "\ud800"},
        {"expect_status": 99},
        {"expect_status": [200, "ok"]},
        {"export": {"1A": "a"}},
        {"timeout": "5"},
        {"timeout": "0s"},
    ],
)
async def test_arguments_nobody_checked_before(args: dict[str, Any], server: Receiver) -> None:
    task = new_task("http.request", {"url": server.url("ok"), **args})
    with pytest.raises(InvalidArguments):
        await new_registry()["http.request"].apply(task, NOWHERE, Kept())
    with pytest.raises(InvalidArguments):
        await new_registry()["http.request"].check(task, NOWHERE)
    assert server.connections == 0


async def test_checking_sends_nothing(server: Receiver) -> None:
    url = server.url("hook?token=s3cret").replace("http://", "http://user:s3cret@")
    args = {"url": url, "json": {"a": 1}, "export": {"A": "b", "C": "d"}}
    foreseen = await new_registry()["http.request"].check(new_task("http.request", args), NOWHERE)
    assert foreseen == CheckResult(
        changed=None, summary=f"would send POST {server.url('hook')}, 7 bytes; exports A, C"
    )
    assert server.connections == 0


# -- what is expected -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected", "fine"),
    [
        ("299", None, True),
        ("404", None, False),
        ("404", 404, True),
        ("200", 404, False),
        ("503", [200, 503], True),
    ],
)
async def test_the_status_decides(path: str, expected: Any, fine: bool, server: Receiver) -> None:
    result = await ask(server.url(path), expect_status=expected)
    assert (result.status is HostStatus.SUCCESS) == fine


async def test_a_failure_says_what_was_asked_and_answered_and_no_secret(server: Receiver) -> None:
    url = server.url("503?body=too%0Abusy%1b[2J&token=s3cret#s3cret")
    said = await failed(url.replace("http://", "http://user:s3cret@"), method="DELETE")
    assert said == f"DELETE {server.url('503')}: answered 503: too busy [2J"


async def test_the_body_is_looked_at(server: Receiver) -> None:
    assert (await ask(server.url("ok"), expect_body="hank")).status is HostStatus.SUCCESS
    said = await failed(server.url("ok"), expect_body="s3cret")
    assert said == f"GET {server.url('ok')}: answered 200, without what expect_body says"


# -- redirects ------------------------------------------------------------------------------------


async def test_a_redirect_is_not_followed(server: Receiver) -> None:
    to = quote("http://elsewhere/x?token=s3cret")
    assert await failed(server.url(f"301?to={to}")) == (
        f"GET {server.url('301')}: answered 301, a redirect to http://elsewhere/x; ask there, or "
        "set follow_redirects: true"
    )
    assert (await ask(server.url("301"), expect_status=301)).status is HostStatus.SUCCESS
    assert [got.path for got in server.received] == ["301", "301"]


async def test_a_redirect_is_followed_on_request(server: Receiver) -> None:
    result = await ask(server.url("307"), json={"a": 1}, follow_redirects=True)
    assert result.status is HostStatus.SUCCESS
    assert [(got.path, got.json) for got in server.received] == [
        ("307", {"a": 1}),
        ("inward", {"a": 1}),
    ]


async def test_only_harmless_headers_follow_to_another_origin(server: Receiver) -> None:
    """Another port is one, too; and what was left behind does not come back."""
    headers = {"X-Api-Key": "s3cret", "Cookie": "a=s3cret", "Authorization": "Bearer s3cret"}
    headers |= {"accept": "text/x", "User-Agent": "me"}
    async with Receiver() as other:
        back = other.url(f"307?to={quote(server.url('ok'), safe='')}")
        url = server.url(f"307?to={quote(back, safe='')}")
        result = await ask(url, headers=headers, json={"a": 1}, follow_redirects=True)
        assert result.status is HostStatus.SUCCESS
        elsewhere = [other.received[0], server.received[1]]
    for got in elsewhere:
        assert not any("s3cret" in value for value in got.headers.values())
        assert (got.headers["accept"], got.headers["user-agent"]) == ("text/x", "me")
        assert (got.headers["content-type"], got.json) == ("application/json", {"a": 1})
    assert server.received[0].headers["x-api-key"] == "s3cret"


@pytest.mark.parametrize(("hops", "fine"), [(9, True), (11, False)])
async def test_redirects_come_to_an_end(hops: int, fine: bool, server: Receiver) -> None:
    url = server.url("ok")
    for _ in range(hops):
        url = server.url(f"301?to={quote(url, safe='')}")
    result = await ask(url, follow_redirects=True)
    assert (result.status is HostStatus.SUCCESS) == fine
    assert fine or (result.message or "").endswith(": redirected more than 10 times")


# -- exports --------------------------------------------------------------------------------------


async def test_values_are_exported_by_their_path(server: Receiver) -> None:
    value = {"data": {"list": [{"id": 7}, {"id": "é"}], "none": None}, "n": 1.5}
    paths = {"ID": "data.list.0.id", "NAME": "data.list.1.id", "NONE": "data.none", "ALL": "."}
    result = await ask(server.url(answering(value)), export=paths)
    assert result.vars == {"ID": 7, "NAME": "é", "NONE": None, "ALL": value}


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        ({"a": 1, "b": 2}, "c", "export.A: c is not in the answer; there is a, b"),
        ({"a": {}}, "a.b", "export.A: a.b is not in the answer; there is an empty map"),
        ({"a": [1]}, "a.1", "export.A: a.1 is not in the answer; there is a list of 1"),
    ],
)
async def test_a_path_that_leads_nowhere(value: Any, path: str, why: str, server: Receiver) -> None:
    said = await failed(server.url(answering(value)), "exports", export={"A": path})
    assert said == f"GET {server.url('200')}: {why}"


@pytest.mark.parametrize("body", ["", "no", "{", "NaN", '"\\ud800"', "[" * 5000, "%ff", '{"a":1}x'])
async def test_an_answer_that_is_no_json(body: str, server: Receiver) -> None:
    url = server.url(f"200?body={body if body == '%ff' else quote(body)}")
    said = await failed(url, "exports", export={"A": "."})
    assert said.endswith("the answer is no JSON: nothing can be exported from it")


# -- servers that misbehave -----------------------------------------------------------------------


async def test_an_answer_without_end_is_read_in_part(server: Receiver) -> None:
    kept = Kept()
    assert (await ask(server.url("endless"), kept)).status is HostStatus.SUCCESS
    assert kept.stdout.endswith(f"… of more than {MOST} bytes\n".encode())
    said = await failed(server.url("endless"), "exports", export={"A": "a"})
    assert said.endswith(f"the answer is longer than {MOST} bytes: nothing is exported from it")
    said = await failed(server.url("endless"), expect_body="x")
    assert said.endswith(f"in its first {MOST} bytes")


async def test_nothing_is_unpacked(server: Receiver) -> None:
    kept = Kept()
    assert (await ask(server.url("gzip-bomb"), kept)).status is HostStatus.SUCCESS
    assert kept.stdout.startswith(b"HTTP 200 OK\n\x1f\x8b")
    assert server.received[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("drop", "the connection was closed without an answer"),
        ("reset", "no connection: Connection reset by peer"),
        ("garbage", "the answer is not HTTP"),
        ("raw?hex=" + b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".hex(), "lost"),
    ],
)
async def test_no_answer(path: str, why: str, server: Receiver) -> None:
    said = await failed(server.url(path))
    assert said.startswith(f"GET {server.url(path.partition('?')[0])}: ")
    assert why in said


@pytest.mark.parametrize("path", ["hang", "trickle-headers", "trickle-body"])
async def test_an_answer_that_does_not_come_to_an_end(path: str, server: Receiver) -> None:
    said = await failed(server.url(path), timeout="100ms")
    assert said.endswith(": no whole answer within 100ms")


async def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    assert await failed(f"http://127.0.0.1:{port}/x") == (
        f"GET http://127.0.0.1:{port}/x: no connection: Connection refused"
    )


async def test_being_cancelled_ends_the_connection(server: Receiver) -> None:
    asking = asyncio.create_task(ask(server.url("hang")))
    await server.got(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await server.alone()


async def test_the_environment_chooses_no_proxy(
    server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert (await ask(server.url("ok"))).status is HostStatus.SUCCESS


async def test_a_certificate_nobody_vouches_for(server_tls: ssl.SSLContext) -> None:
    async with Receiver(tls=server_tls) as server:
        url = server.url("ok", "localhost")
        assert await failed(url) == (
            f"GET {url}: its certificate is not accepted: self-signed certificate"
        )
        assert (await ask(url, verify=False)).status is HostStatus.SUCCESS
