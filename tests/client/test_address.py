"""Where a gateway is, and that no secret is part of it."""

from __future__ import annotations

import asyncio

import pytest

import tenure
from tenure.client import HttpStore
from tenure.client.transport import address_of
from tenure.model.errors import UnknownStore


def test_a_gateway_may_stand_below_a_path() -> None:
    assert address_of("https://example.com/tenure/") == "https://example.com/tenure"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@example.com",
        "http://hunter2@example.com",
        "http://",
        "ftp://example.com",
        "example.com",
        "http://example.com:port",
        "http://example.com?token=hunter2",
        "http://example.com#x",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UnknownStore) as refused:
        address_of(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("token", ["hush\nx: y", "hüsh", "hush\x00"])
def test_what_is_no_token_is_refused_and_not_shown(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownStore) as refused:
        HttpStore("http://127.0.0.1:1", token)
    assert "sh" not in str(refused.value)
    monkeypatch.setenv("TENURE_TOKEN", " hush\n")
    HttpStore("http://127.0.0.1:1")  # as it comes out of a file


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_url_opens_a_store_without_asking_anybody(scheme: str) -> None:
    store = tenure.open_store(f"{scheme}://127.0.0.1:1")
    assert isinstance(store, HttpStore)
    assert store.durable
    assert store.attended_by == f"the gateway at {scheme}://127.0.0.1:1"


async def test_nobody_there_is_a_store_that_is_away() -> None:
    async with HttpStore("http://127.0.0.1:1") as store:
        with pytest.raises(tenure.StoreUnavailable, match=r"127\.0\.0\.1:1 did not answer"):
            await store.get_run("run-00001")


async def test_a_proxy_of_the_environment_is_the_way_out_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 502 Bad\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://ada:hush@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "near.example")
        for host in ("far.example", "near.example"):
            async with HttpStore(f"http://{host}:1") as store:
                with pytest.raises(tenure.StoreUnavailable):
                    await store.get_run("run-00001")
    (head,) = heads
    assert head.startswith(b"GET http://far.example:1/v1/runs/run-00001/record ")
    assert b"Proxy-Authorization: Basic YWRhOmh1c2g=\r\n" in head
