"""One gateway for each test process, with a token of every role: tests bring runs of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tenure.model.snapshot import RunSnapshot
from tenure.stores.memory import InMemoryStore
from tests.gateway.house import LONG_AGO, Client, House

_numbers = count(1)


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    with House(InMemoryStore()) as house:
        house.token("admin")
        yield house


@pytest.fixture(scope="session")
def tokens(house: House) -> dict[str, str]:
    """By role."""
    return {role: house.token(role) for role in ("viewer", "operator", "worker", "admin")}


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
