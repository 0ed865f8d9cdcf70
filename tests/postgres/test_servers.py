"""Several servers, wherever they were named: each has its own time to answer, and an error says
what each of them said."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.model.errors import StoreUnavailable, UnknownStore
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.connections import Purpose
from tests.postgres.database import TestDatabase
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

HASTE = "connect_timeout=0.5"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """As a server that is switched off, or cut off without a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def port_of(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


async def is_asked_once_only(silent: socket.socket, url: str) -> None:
    async with PostgresStore(url) as store:
        await store.list_runs()
        await store.take_census()
        await asyncio.gather(store.list_runs(), store.list_runs())
    silent.setblocking(False)
    silent.accept()[0].close()
    with pytest.raises(BlockingIOError):
        silent.accept()


async def test_servers_of_the_environment_have_each_their_time(
    monkeypatch: pytest.MonkeyPatch,
    postgres_server: Server,
    postgres_database: TestDatabase,
    silent: socket.socket,
) -> None:

    monkeypatch.setenv("PGHOST", "127.0.0.1,127.0.0.1")
    monkeypatch.setenv("PGPORT", f"{port_of(silent)},{postgres_server.port}")
    url = f"postgresql://tenure@/shared?{HASTE}"
    place = f"postgresql://127.0.0.1:{port_of(silent)},127.0.0.1:{postgres_server.port}/shared"
    assert Address.parse(url).place == place
    await is_asked_once_only(silent, url)


@pytest.mark.parametrize("named_by", ["URL", "environment"])
async def test_servers_of_a_service_file_have_each_their_time(
    monkeypatch: pytest.MonkeyPatch,
    postgres_server: Server,
    postgres_database: TestDatabase,
    silent: socket.socket,
    tmp_path: Path,
    named_by: str,
) -> None:
    ports = f"{port_of(silent)},{postgres_server.port}"
    (tmp_path / "services").write_text(
        f"[tenure]\nhost=127.0.0.1,127.0.0.1\nport={ports}\nuser=tenure\ndbname=shared\n"
        "connect_timeout=1\napplication_name=of-the-file\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    if named_by == "environment":
        monkeypatch.setenv("PGSERVICE", "tenure")
    url = "postgresql://" + ("?service=tenure" if named_by == "URL" else "")
    address = Address.parse(url)
    assert address.connect_timeout == 1
    assert "application_name=of-the-file" in address.conninfo
    assert address.place.endswith("/shared")
    await is_asked_once_only(silent, url)


def _resolve(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> None:
    async def found(loop: object, host: str, port: Any, **kind: Any) -> list[Any]:
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port)))
            for address in names[host]
        ]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", found)


async def test_addresses_of_one_name_have_each_their_time(
    monkeypatch: pytest.MonkeyPatch, postgres_server: Server, postgres_database: TestDatabase
) -> None:
    _resolve(monkeypatch, {"db.example": ["127.0.0.2", "127.0.0.1"]})
    with socket.create_server(("127.0.0.2", postgres_server.port)) as silent:
        url = f"postgresql://tenure@db.example:{postgres_server.port}/shared?{HASTE}"
        await is_asked_once_only(silent, url)


async def test_a_name_that_means_another_server_by_now_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch, postgres_server: Server, postgres_database: TestDatabase
) -> None:
    """Who was switched over by name is no longer asked, though it would still answer."""
    names = {"db.example": ["127.0.0.1"]}
    _resolve(monkeypatch, names)
    url = f"postgresql://tenure@db.example:{postgres_server.port}/shared?{HASTE}"
    async with PostgresStore(url) as store:
        await store.list_runs()
        (line,) = store._connections._lanes[asyncio.get_running_loop()][Purpose.READING].idle
        line.hang_up()
        names["db.example"] = ["127.0.0.3"]
        with pytest.raises(StoreUnavailable, match="refused"):
            await store.list_runs()


def test_a_time_of_the_environment_is_judged_like_one_of_the_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    assert Address.parse("postgresql://db/x").connect_timeout == 7
    assert Address.parse("postgresql://db/x?connect_timeout=3").connect_timeout == 3
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "soon")
    with pytest.raises(UnknownStore, match="connect_timeout is seconds, at most a day, not 'soon'"):
        Address.parse("postgresql://db/x")


@pytest.fixture
def replica(postgres_server: Server) -> Iterator[str]:
    """What it looks like to a client: a server that takes no writes. (Real ones are in
    ``test_crashes``.)"""
    postgres_server.execute("create database readable")
    postgres_server.execute("alter database readable set default_transaction_read_only = on")
    yield "readable"
    postgres_server.execute("drop database readable with (force)")


async def test_an_error_tells_what_each_server_said(
    postgres_server: Server, replica: str, silent: socket.socket
) -> None:
    servers = f"127.0.0.1:1,127.0.0.1:{port_of(silent)},127.0.0.1:{postgres_server.port}"
    url = f"postgresql://tenure@{servers}/{replica}?{HASTE}"
    async with PostgresStore(url) as store:
        with pytest.raises(StoreUnavailable) as refused:
            await store.list_runs()
    assert str(refused.value) == (
        f"no server of postgresql://{servers}/{replica} takes writes: "
        "127.0.0.1:1: Connection refused; "
        f"127.0.0.1:{port_of(silent)} did not answer within 0.5 s; "
        f"127.0.0.1:{postgres_server.port} is a read replica, or was made read-only"
    )


async def test_who_named_nothing_but_replicas_is_told_to_name_the_primary(
    postgres_server: Server, replica: str
) -> None:
    server = f"127.0.0.1:{postgres_server.port}"
    for servers in (server, f"{server},{server}"):
        async with PostgresStore(f"postgresql://tenure@{servers}/{replica}") as store:
            with pytest.raises(StoreUnavailable, match=r"read replica.* Name the primary"):
                await store.list_runs()


async def test_an_error_tells_which_address_and_which_name_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _resolve(monkeypatch, {"db.example": ["127.0.0.2", "127.0.0.3"]})
    async with PostgresStore("postgresql://tenure@db.example:1,gone.example:2/x") as store:
        with pytest.raises(StoreUnavailable) as refused:
            await store.list_runs()
    assert "db.example:1 (127.0.0.2): Connection refused" in str(refused.value)
    assert "db.example:1 (127.0.0.3): Connection refused" in str(refused.value)
    assert "gone.example:2: failed to resolve host 'gone.example'" in str(refused.value)


async def test_an_error_of_one_server_is_told_in_its_own_words(postgres_server: Server) -> None:
    async with PostgresStore(postgres_server.url("no_such_database")) as store:
        with pytest.raises(StoreUnavailable, match='database "no_such_database" does not exist'):
            await store.list_runs()
