"""A large batch of updates is written part by part, while the rest of it is still being decided:
in one transaction all the same, with an outcome for each, and nothing is told before its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from tenure.model.errors import StoreRejected, StoreUnavailable, TenureError, VersionConflict
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Receipt, Update, Write
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.connections import Purpose
from tenure.stores.postgres.writing import parts_of
from tenure.testing.factories import (
    HOSTS,
    annotate,
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


@pytest.mark.parametrize("size", range(130))
def test_parts_are_the_whole_in_its_order(size: int) -> None:
    work = [(i, annotate(embedded_run("owner-a").snapshot)) for i in range(size)]
    parts = parts_of([*work])
    assert [each for part in parts for each in part] == work
    assert all(parts) or not work
    assert (len(parts) > 1) == (size > 32)


def test_what_creates_runs_is_never_parted() -> None:
    work: list[tuple[int, Write]] = [
        (i, annotate(embedded_run("owner-a").snapshot)) for i in range(99)
    ]
    work.append((99, embedded_run("owner-a")))
    assert parts_of(work) == [work]


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


async def test_it_is_one_transaction_also_if_the_server_forgot_how_one_begins(
    postgres_database: TestDatabase,
) -> None:
    """The parts are on their way before anybody knows whether the first was understood."""
    async with PostgresStore(f"{postgres_database.url}?prepared=yes&connections=1") as store:
        runs = await _runs(store)
        await store.update_runs([annotate(run) for run in runs])
        (line,) = store._connections._lanes[asyncio.get_running_loop()][Purpose.WRITING].idle
        found = await line.execute(
            "select name from pg_prepared_statements where statement like 'begin%'", prepare=False
        )
        for (name,) in await found.fetchall():
            await line.execute(f"deallocate {name}", prepare=False)
        runs = [await store.get_run(run.run_id) for run in runs]
        for outcome in await store.update_runs(_started(runs)):
            assert isinstance(outcome, Receipt)


async def test_those_that_changed_meanwhile_are_refused_wherever_they_stand(
    store: PostgresStore, postgres_database: TestDatabase
) -> None:
    runs = await _runs(store)
    changed = {0, 17, 50, MANY - 1}
    async with PostgresStore(postgres_database.url) as other:
        for number in changed:
            await other.update_run(annotate(runs[number]))
    for number, outcome in enumerate(await store.update_runs(_started(runs))):
        assert isinstance(outcome, VersionConflict if number in changed else Receipt), number
    for number in changed:
        assert not (await store.get_run(runs[number].run_id)).steps[0].started_at
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


async def test_end_that_the_server_refused_is_not_remembered(store: PostgresStore) -> None:
    """Memory is ahead while the batch is on its way. Whatever becomes of it, nobody is told of an
    end that is not there."""
    runs = await _runs(store, (*HOSTS, NOT_FOR_THE_SERVER))
    updates = [change_run(run, status=RunStatus.FAILED, message="over") for run in runs]
    updates[-1] = start_step(runs[-1], hosts=(NOT_FOR_THE_SERVER,))
    outcomes: list[Receipt | TenureError] = await store.update_runs(updates)
    assert isinstance(outcomes.pop(), StoreRejected)
    assert all(isinstance(outcome, Receipt) for outcome in outcomes)
    assert store.last_record(runs[-1].run_id) is None
    assert [(await store.get_run(run.run_id)).status for run in runs[:-1]] == [RunStatus.FAILED] * (
        MANY - 1
    )
    assert (await store.get_run(runs[-1].run_id)).status == RunStatus.RUNNING


async def test_answer_that_was_lost_is_given_again(
    postgres_database: TestDatabase, postgres_server: Server
) -> None:
    async with (
        Proxy(postgres_server.port) as proxy,
        PostgresStore(postgres_database.url_through(proxy.port)) as store,
    ):
        runs = await _runs(store)
        updates = _started(runs)
        proxy.lose_next_answer()
        with pytest.raises(StoreUnavailable):
            await store.update_runs(updates)
        for outcome in await store.update_runs(updates):
            assert isinstance(outcome, Receipt), outcome
            assert outcome.version == 2
        await _goes_on(store, runs)


async def test_ends_whose_answer_was_lost_are_not_remembered_as_ended(
    postgres_database: TestDatabase, postgres_server: Server
) -> None:
    async with (
        Proxy(postgres_server.port) as proxy,
        PostgresStore(postgres_database.url_through(proxy.port)) as store,
    ):
        runs = await _runs(store)
        proxy.lose_next_answer()
        with pytest.raises(StoreUnavailable):
            await store.update_runs(
                [change_run(run, status=RunStatus.FAILED, message="over") for run in runs]
            )
        assert [store.last_record(run.run_id) for run in runs] == [None] * MANY
