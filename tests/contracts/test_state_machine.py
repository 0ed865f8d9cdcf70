"""Every store of ours against the plain model, by random histories; the long ones also with
random faults."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.faults import FaultyStore, RetryingStore
from tenure.testing.machine import OpenStore, run_store_machine
from tests.postgres.database import ServersClock, TestDatabase


@asynccontextmanager
async def memory(clock: ManualClock) -> AsyncIterator[Any]:
    yield InMemoryStore(clock)


@asynccontextmanager
async def sqlite(clock: ManualClock) -> AsyncIterator[Any]:
    with tempfile.TemporaryDirectory() as directory:
        store = await SQLiteStore.open(Path(directory, "runs.db"), clock=clock)
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def file(clock: ManualClock) -> AsyncIterator[Any]:
    with tempfile.TemporaryDirectory() as directory:
        store = FileStore(Path(directory), clock=clock)
        try:
            yield store
        finally:
            await store.close()


def with_faults(open_store: OpenStore, rate: float = 0.10) -> OpenStore:
    @asynccontextmanager
    async def opened(clock: ManualClock) -> AsyncIterator[Any]:
        async with open_store(clock) as store:
            yield RetryingStore(FaultyStore(store, seed=1, rate=rate))

    return opened


STORES = [
    pytest.param(memory, 25, id="memory"),
    pytest.param(sqlite, 15, id="sqlite"),
    pytest.param(file, 10, id="file"),
]
WITH_FAULTS = [
    pytest.param(with_faults(memory), 40, id="memory-10%"),
    pytest.param(with_faults(sqlite), 25, id="sqlite-10%"),
    pytest.param(with_faults(file), 15, id="file-10%"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("open_store", "examples"), STORES)
def test_store_answers_like_the_model(open_store: OpenStore, examples: int) -> None:
    run_store_machine(open_store, examples=examples)


@asynccontextmanager
async def postgres(clock: ManualClock) -> AsyncIterator[Any]:
    assert isinstance(clock, ServersClock)
    clock.database.empty()
    async with PostgresStore(f"{clock.database.url}?prepared=yes", clock) as store:
        yield store


ON_A_SERVER = [
    pytest.param(postgres, 15, id="postgres"),
    pytest.param(with_faults(postgres), 15, id="postgres-10%"),
]


@pytest.mark.slow
def test_store_on_a_server_answers_like_the_model(postgres_shared: TestDatabase) -> None:
    new_clock = partial(ServersClock, postgres_shared)
    run_store_machine(postgres, examples=10, new_clock=new_clock)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("open_store", "examples"), ON_A_SERVER)
def test_store_on_a_server_answers_like_the_model_for_long(
    open_store: OpenStore, examples: int, seed: int, postgres_shared: TestDatabase
) -> None:
    new_clock = partial(ServersClock, postgres_shared)
    run_store_machine(open_store, examples=20 * examples, steps=60, seed=seed, new_clock=new_clock)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("open_store", "examples"), STORES + WITH_FAULTS)
def test_store_answers_like_the_model_for_long(
    open_store: OpenStore, examples: int, seed: int
) -> None:
    run_store_machine(open_store, examples=20 * examples, steps=60, seed=seed)
