"""Several servers, wherever they were named: the one that takes writes is used, and an error says
what each of them said."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tenure.model.errors import StoreUnavailable, UnknownStore
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.address import Address
from tests.postgres.database import TestDatabase
from tests.postgres.server import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that is switched off, or cut off without a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_a_silent_server_of_the_environment_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
    postgres_server: Server,
    postgres_database: TestDatabase,
    silent: int,
) -> None:
    monkeypatch.setenv("PGHOST", "127.0.0.1,127.0.0.1")
    monkeypatch.setenv("PGPORT", f"{silent},{postgres_server.port}")
    url = "postgresql://tenure@/shared?connect_timeout=1"
    place = f"postgresql://127.0.0.1:{silent},127.0.0.1:{postgres_server.port}/shared"
    assert Address.parse(url).place == place
    async with PostgresStore(url) as store:
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
    postgres_server: Server, replica: str, silent: int
) -> None:
    servers = f"127.0.0.1:1,127.0.0.1:{silent},127.0.0.1:{postgres_server.port}"
    url = f"postgresql://tenure@{servers}/{replica}?connect_timeout=1"
    async with PostgresStore(url) as store:
        with pytest.raises(StoreUnavailable) as refused:
            await store.list_runs()
    said = str(refused.value)
    assert said.startswith(f"no server of postgresql://{servers}/{replica} takes writes: ")
    assert "port 1 failed: Connection refused" in said
    assert f"'{silent}'" in said
    assert "timeout expired" in said
    assert f"port {postgres_server.port} failed: session is read-only" in said


async def test_a_url_of_nothing_but_replicas_is_told_to_name_the_primary(
    postgres_server: Server, replica: str
) -> None:
    server = f"127.0.0.1:{postgres_server.port}"
    for servers in (server, f"{server},{server}"):
        async with PostgresStore(f"postgresql://tenure@{servers}/{replica}") as store:
            with pytest.raises(StoreUnavailable, match=r"read replica.* Name the primary"):
                await store.list_runs()


async def test_a_silent_server_is_said_to_be(silent: int) -> None:
    url = f"postgresql://tenure@127.0.0.1:{silent}/x?connect_timeout=2"
    async with PostgresStore(url) as store:
        with pytest.raises(StoreUnavailable, match="did not answer within 2 s"):
            await store.list_runs()


async def test_an_error_of_one_server_is_told_in_its_own_words(postgres_server: Server) -> None:
    async with PostgresStore(postgres_server.url("no_such_database")) as store:
        with pytest.raises(StoreUnavailable, match='database "no_such_database" does not exist'):
            await store.list_runs()
