"""One gateway for each test process, with a token of every role: tests bring runs of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tenure.model.snapshot import RunSnapshot
from tenure.stores.memory import InMemoryStore
from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore
from tests.gateway.house import LONG_AGO, Client, House
from tests.postgres.database import TestDatabase
from tests.postgres.server import Server

_numbers = count(1)
HOUSES = ("house", "sqlite_house", "postgres_house")
"""The fixtures of those that serve all tests of a process, before each kind of store."""


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    with House(InMemoryStore()) as house:
        house.token("admin")
        yield house


@pytest.fixture(scope="session")
def tokens(house: House) -> dict[str, str]:
    """By role."""
    return house.tokens()


@pytest.fixture(scope="session")
def sqlite_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(SQLiteStore(tmp_path_factory.mktemp("gateway") / "runs.db")) as house:
        yield house


@pytest.fixture(scope="session")
def postgres_house(postgres_server: Server) -> Iterator[House]:
    database = TestDatabase(postgres_server, "gateway", clock_stands=False)
    with House(PostgresStore(database.url)) as house:
        yield house
    database.close()


@pytest.fixture(params=HOUSES)
def lasting_or_not(request: pytest.FixtureRequest) -> House:
    """Before each kind of store; they serve as long as the test process."""
    house: House = request.getfixturevalue(request.param)
    return house


@pytest.fixture(scope="session")
def bad_tokens(house: House) -> dict[str, str]:
    good = house.token("admin", "for a while")
    return {
        "unknown": good.replace("tenure_admin", "tenure_nobody"),
        "wrong secret": good + "x",
        "expired": house.token("admin", "expired", expires_at=LONG_AGO),
        "revoked": house.token("admin", "revoked", revoked_at=LONG_AGO),
        "empty": "",
        "nonsense": "\xff_\xfe_",
    }


@pytest.fixture(scope="session")
def admin(house: House, tokens: dict[str, str]) -> Iterator[Client]:
    client = house.client(tokens["admin"])
    yield client
    client.close()


@pytest.fixture(scope="session")
def operator(house: House, tokens: dict[str, str]) -> Iterator[Client]:
    client = house.client(tokens["operator"])
    yield client
    client.close()


@pytest.fixture(scope="session")
def worker(house: House, tokens: dict[str, str]) -> Iterator[Client]:
    client = house.client(tokens["worker"])
    yield client
    client.close()


@pytest.fixture
def run_id() -> str:
    return f"run-{next(_numbers):06d}"


def flow(**more: Any) -> dict[str, Any]:
    """A small workflow, as an object."""
    return {
        "version": "v1",
        "name": "greet",
        "inventory": {"hosts": {"web1": {"address": "local"}, "web2": {"address": "local"}}},
        "steps": [{"name": "hello", "action": "cmd.run", "args": {"cmd": "echo hello"}}],
        **more,
    }


@pytest.fixture
def queued(operator: Client, run_id: str) -> str:
    """The id of a run that nobody has taken."""
    answer = operator.post("/v1/runs", {"workflow": flow(), "options": {"run_id": run_id}})
    assert answer.status == 201, answer
    return run_id


def stored(house: House, run_id: str) -> RunSnapshot:
    run: RunSnapshot = house.run(house.store.get_run(run_id))
    return run
