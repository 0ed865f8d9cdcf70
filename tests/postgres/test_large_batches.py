"""A large batch of updates is one transaction, with an outcome for each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from tenure.model.errors import StoreRejected, StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Receipt, Update
from tenure.stores.postgres import PostgresStore
from tenure.testing.factories import (
    HOSTS,
    change_run,
    embedded_run,
    planned_steps,
    start_step,
)
from tests.postgres.database import TestDatabase
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

MANY = 100
NOT_FOR_THE_SERVER = "web\0"
"""A name that JSON can hold, and no column of texts."""


@pytest.fixture
async def store(postgres_database: TestDatabase) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database.url) as store:
        yield store


async def _runs(store: PostgresStore, hosts: tuple[str, ...] = HOSTS) -> list[RunSnapshot]:
    new = [embedded_run("owner-a", steps=planned_steps(hosts=hosts)) for _ in range(MANY)]
    for outcome in await store.update_runs(new):
        assert isinstance(outcome, Receipt)
    return [await store.get_run(each.snapshot.run_id) for each in new]


def _started(runs: list[RunSnapshot]) -> list[Update]:
    return [start_step(run) for run in runs]


async def _goes_on(store: PostgresStore, runs: list[RunSnapshot]) -> None:
    """Each of them, from where the store has it."""
    stored = [await store.get_run(run.run_id) for run in runs]
    for run, outcome in zip(
        stored,
        await store.update_runs([change_run(run, message="goes on") for run in stored]),
        strict=True,
    ):
        assert isinstance(outcome, Receipt), outcome
        assert outcome.version == run.version + 1
        assert (await store.get_run(run.run_id)).message == "goes on"


async def test_it_is_one_transaction(store: PostgresStore, postgres_database: TestDatabase) -> None:
    runs = await _runs(store)
    for outcome in await store.update_runs(_started(runs)):
        assert isinstance(outcome, Receipt)
        assert outcome.version == 2
    with psycopg.connect(postgres_database.url) as connection:
        written = connection.execute(
            "select count(*), count(distinct xmin::text) from tenure.journal where version = 2"
        ).fetchone()
    assert written == (MANY, 1)
    await _goes_on(store, runs)


@pytest.mark.parametrize("number", [3, MANY - 1])
async def test_value_that_the_server_refuses_harms_no_other(
    store: PostgresStore, number: int
) -> None:
    runs = await _runs(store, (*HOSTS, NOT_FOR_THE_SERVER))
    updates = [
        start_step(run, hosts=(NOT_FOR_THE_SERVER,) if each == number else HOSTS)
        for each, run in enumerate(runs)
    ]
    for each, outcome in enumerate(await store.update_runs(updates)):
        assert isinstance(outcome, StoreRejected if each == number else Receipt), (each, outcome)
    assert (await store.get_run(runs[number].run_id)).version == 1
    await _goes_on(store, runs)


async def test_answer_that_was_lost_is_given_again(
    postgres_database: TestDatabase, postgres_server: Server
) -> None:
    async with (
        Proxy(postgres_server.port) as proxy,
        PostgresStore(postgres_database.url_through(proxy.port)) as store,
    ):
        runs = await _runs(store)
        updates = _started(runs)
        proxy.lose_next_answer(updates[0].update_id)
        with pytest.raises(StoreUnavailable):
            await store.update_runs(updates)
        for outcome in await store.update_runs(updates):
            assert isinstance(outcome, Receipt), outcome
            assert outcome.version == 2
        await _goes_on(store, runs)
