"""Runners on every kind of store there is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from examples.custom_store import DocumentStore, KeyValueService

import tenure
from tenure import bootstrap
from tenure.runtime.options import Timing
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tests.runtime.puppets import Puppet

QUICK = Timing(lease_duration=60, renew_interval=20, control_interval=0.01)
"""Operators are heard at once; leases outlive the test."""

NewRunner = Callable[..., tenure.Runner]


@pytest.fixture
async def memory() -> InMemoryStore:
    return InMemoryStore()


_STORES = [
    "memory",
    "sqlite",
    pytest.param("file", marks=pytest.mark.slow),
    pytest.param("custom", marks=pytest.mark.slow),
]
"""The inner loop asks the two that differ most; the others answer in `make test`."""


@pytest.fixture(params=_STORES)
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    async with AsyncExitStack() as closing:
        match request.param:
            case "memory":
                yield InMemoryStore()
            case "file":
                yield await closing.enter_async_context(FileStore(tmp_path / "runs"))
            case "sqlite":
                store = await SQLiteStore.open(tmp_path / "runs.db")
                yield await closing.enter_async_context(store)
            case _:
                yield DocumentStore(KeyValueService())


@pytest.fixture(params=["memory", "sqlite"])
async def queueing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A store from which workers could take what is submitted."""
    if request.param == "memory":
        yield InMemoryStore()
        return
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        yield store


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with await SQLiteStore.open(tmp_path / "runs.db") as store:
        yield store


@pytest.fixture
def act() -> Puppet:
    return Puppet()


@pytest.fixture
async def new_runner(act: Puppet) -> AsyncIterator[NewRunner]:
    """Runners that know the action ``act`` and Tenure's own, closed in the end."""
    from tenure.actions import new_registry as registry

    async with AsyncExitStack() as closing:

        def make(store: Any = None, **rest: Any) -> tenure.Runner:
            rest.setdefault("timing", QUICK)
            rest.setdefault("actions", {**registry(), act.spec.name: act})
            runner = tenure.Runner(store, **rest)
            closing.push_async_callback(runner.close)
            return runner

        yield make


@pytest.fixture
def runner(new_runner: NewRunner, memory: InMemoryStore) -> tenure.Runner:
    return new_runner(memory)


@pytest.fixture
def warn_anew() -> Iterator[None]:
    """As in a process that has warned of nothing yet."""
    before = bootstrap._warned.is_set()
    bootstrap._warned.clear()
    yield
    if before:
        bootstrap._warned.set()
