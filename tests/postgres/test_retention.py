"""Pruning a server's store, beside others who use it, and whoever is stopped where."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from tenure.model.errors import DeliveryNotFound, RunNotFound
from tenure.model.outbox import GiveUp
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import DeliveryState
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres import admin as module
from tenure.testing.contracts.acts import create
from tenure.testing.contracts.retention import ended
from tenure.testing.factories import HOOK, cancel, unique
from tests.postgres.database import migrated
from tests.postgres.server import Server
from tests.system.workers.wrong_clock import with_clock

pytestmark = pytest.mark.slow

A_MONTH_AHEAD = f"+{31 * 86400}s"
PATIENCE = 30.0
GATE = """
create function gate() returns void language sql as $$ select pg_advisory_xact_lock_shared(1) $$;
create function gate_of_rows() returns trigger language plpgsql
  as $$ begin perform gate(); return null; end $$
"""


@pytest.fixture
async def url(postgres_server: Server) -> str:
    """Of a store whose clock goes as clocks do."""
    postgres_server.execute("drop database if exists pruning with (force)")
    postgres_server.execute("create database pruning")
    url = postgres_server.url("pruning")
    await migrated(url)
    return url


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(url) as store:
        yield store


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    """As if in a process of its own."""
    async with PostgresStore(url) as store:
        yield store


class Gate:
    """Where whoever comes to some statement waits, in the middle of his transaction."""

    def __init__(self, onlooker: psycopg.AsyncConnection) -> None:
        self._onlooker = onlooker

    async def close_before(self, sql: LiteralString) -> None:
        await self._onlooker.execute(GATE)
        await self._onlooker.execute(sql)
        await self._onlooker.execute("select pg_advisory_lock(1)")

    async def open(self, number: int = 1) -> None:
        await self._onlooker.execute("select pg_advisory_unlock(%s)", (number,))

    async def waiting(self, count: int, *unless: asyncio.Task[Any]) -> None:
        """Until so many wait, there or for one another, or one of the tasks is over."""
        async with asyncio.timeout(PATIENCE):
            while await self._waiting() < count and not any(task.done() for task in unless):
                await asyncio.sleep(0.01)

    async def _waiting(self) -> int:
        cursor = await self._onlooker.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        )
        ((count,),) = await cursor.fetchall()
        return int(count)


@pytest.fixture
async def gate(url: str) -> AsyncIterator[Gate]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as onlooker:
        yield Gate(onlooker)


async def test_clock_of_the_machine_that_prunes_is_no_matter(
    url: str, store: PostgresStore
) -> None:
    run = await ended(store)
    pruned = subprocess.run(
        [
            str(Path(sys.executable).with_name("tenure")),
            *("store", "prune", "--older-than", "30d", "--store", url),
        ],
        capture_output=True,
        text=True,
        env=os.environ | with_clock(A_MONTH_AHEAD),
    )
    assert pruned.stdout == "no run ended that long ago\n", pruned.stderr
    assert await store.get_run(run.run_id) == run
    assert await store.prune_runs(0.0) == 1
    with pytest.raises(RunNotFound):
        await store.get_run(run.run_id)


# What hangs on a run counts


ROWS = 30_000
OUTPUT = """
insert into tenure.log_chunks select seq, 0, 'host-' || n, -1, 1, 'stdout', 0, 1, 'x'
from tenure.runs, generate_series(1, %s) n where run_id = %s
"""


async def printed_much(url: str, store: PostgresStore) -> None:
    run = await ended(store)
    async with await psycopg.AsyncConnection.connect(url) as person:
        await person.execute(OUTPUT, (ROWS, run.run_id))


async def removed_between_pauses(
    url: str, store: PostgresStore, limit: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[int], float]:
    """How many rows of output at a time; and in how many seconds all of them, had the pauses been
    made."""
    left, paused = [ROWS], list[float]()

    async def look(seconds: float) -> None:
        paused.append(seconds)
        left.append(await count_of(url, "tenure.log_chunks"))

    monkeypatch.setattr(module, "pause", look)
    began = asyncio.get_running_loop().time()
    assert await store.prune_runs(0.0, limit=limit) == 1
    took = asyncio.get_running_loop().time() - began
    return [before - after for before, after in pairwise(left)], took + sum(paused)


@pytest.mark.parametrize(("limit", "at_once"), [(5, 1000), (100, module.ROWS_AT_ONCE)])
async def test_output_of_a_run_leaves_no_faster_than_as_many_runs_would(
    url: str,
    store: PostgresStore,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    at_once: int,
) -> None:
    await printed_much(url, store)
    removed, seconds = await removed_between_pauses(url, store, limit, monkeypatch)
    assert sum(removed) == ROWS
    assert max(removed) <= at_once
    runs_worth = ROWS / module.ROWS_OF_A_RUN
    assert seconds >= 0.99 * (runs_worth - limit) / (limit * module.CALLS_PER_SECOND)
    assert (await store.check_store()).problems == ()


async def test_prune_that_is_stopped_in_a_pause_is_finished_by_the_next(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await printed_much(url, store)
    resting = asyncio.Event()

    async def rest(_: float) -> None:
        resting.set()
        await asyncio.get_running_loop().create_future()

    with monkeypatch.context() as patched:
        patched.setattr(module, "pause", rest)
        pruning = asyncio.create_task(store.prune_runs(0.0, limit=1))
        await resting.wait()
        await create(store)  # nobody's connection is kept
        pruning.cancel()
        await asyncio.wait([pruning])
    assert await store.prune_runs(0.0) == 0
    assert await count_of(url, "tenure.log_chunks") == 0
    assert (await store.check_store()).problems == ()


# A callback is sent again meanwhile


async def given_up(store: PostgresStore) -> tuple[RunSnapshot, list[str]]:
    """A run that ended, and its callbacks: nobody will send them."""
    run = await ended(store, callbacks=(HOOK,))
    letters = []
    for _ in range(2):
        (held,) = await store.claim_deliveries(unique("token"), limit=1)
        await store.settle_delivery(held.id, held.token or "", GiveUp("410"))
        letters.append(held.id)
    return await store.get_run(run.run_id), letters


async def test_run_stays_whose_callback_is_just_being_queued_again(
    store: PostgresStore, other: PostgresStore, gate: Gate
) -> None:
    run, letters = await given_up(store)
    await gate.close_before(
        "create trigger gate after update on tenure.deliveries "
        "for each statement execute function gate_of_rows()"
    )
    requeuing = asyncio.create_task(store.requeue_delivery(letters[0]))
    await gate.waiting(1)
    pruning = asyncio.create_task(other.prune_runs(0.0))
    await gate.waiting(2, pruning)
    await gate.open()
    assert await pruning == 0
    assert (await requeuing).state is DeliveryState.WAITING
    assert await store.get_run(run.run_id) == run
    assert [held.id for held in await store.claim_deliveries(unique("token"))] == letters[:1]


async def test_callback_of_a_run_that_is_just_leaving_is_not_queued_again(
    store: PostgresStore, other: PostgresStore, gate: Gate
) -> None:
    """Who would be told that it is, never hears that it was lost."""
    _, letters = await given_up(store)
    await gate.close_before(
        "create trigger gate after delete on tenure.runs "
        "for each statement execute function gate_of_rows()"
    )
    pruning = asyncio.create_task(other.prune_runs(0.0))
    await gate.waiting(1)
    requeuing = asyncio.create_task(store.requeue_delivery(letters[0]))
    await gate.waiting(2, requeuing)
    await gate.open()
    with pytest.raises(DeliveryNotFound):
        await requeuing
    assert await pruning == 1
    assert (await store.check_store()).problems == ()


async def test_run_is_noted_until_nothing_of_it_is_left(url: str, store: PostgresStore) -> None:
    """A row that somebody holds is left to the next prune."""
    await given_up(store)
    async with await psycopg.AsyncConnection.connect(url) as person:
        await person.execute("update tenure.deliveries set attempts = 5")
        assert await store.prune_runs(0.0) == 1
        (problem,) = (await store.check_store()).problems
        assert "Prune once more" in problem
        await person.commit()
    assert await store.prune_runs(0.0) == 0
    assert (await store.check_store()).problems == ()
    assert await count_of(url, "tenure.deliveries") == 0


# Workflow texts


TEXT = "name: shared"


async def count_of(url: str, table: LiteralString) -> int:
    async with await psycopg.AsyncConnection.connect(url) as onlooker:
        ((count,),) = await (await onlooker.execute(f"select count(*) from {table}")).fetchall()
    return int(count)


async def test_text_goes_with_the_last_run_that_uses_it(url: str, store: PostgresStore) -> None:
    for _ in range(3):
        await ended(store, definition=TEXT)
    stays = await create(store, definition=TEXT)
    assert await store.prune_runs(0.0) == 3
    assert await store.get_definition(stays.run_id) == TEXT
    await store.update_run(cancel(stays))
    assert await store.prune_runs(0.0) == 1
    assert await count_of(url, "tenure.definitions") == 0
    assert await count_of(url, "tenure.pruned") == 0


async def test_text_is_removed_by_the_next_prune_if_one_is_stopped(
    url: str, store: PostgresStore, other: PostgresStore, gate: Gate
) -> None:
    await ended(store, definition=TEXT)
    await gate.close_before(
        "create trigger gate after delete on tenure.definitions "
        "for each statement execute function gate_of_rows()"
    )
    pruning = asyncio.create_task(store.prune_runs(0.0))
    await gate.waiting(1)
    pruning.cancel()
    await asyncio.wait([pruning])
    await gate.open()
    (problem,) = (await other.check_store()).problems
    assert "Prune once more" in problem
    assert await other.prune_runs(0.0) == 0
    assert await count_of(url, "tenure.definitions") == 0
    assert (await other.check_store()).problems == ()


async def test_text_stays_that_a_run_is_just_being_created_with(
    url: str, store: PostgresStore, other: PostgresStore, gate: Gate
) -> None:
    """And the prune waits for nobody: the next one looks again."""
    await ended(store, definition=TEXT)
    await gate.close_before(
        "create trigger gate after insert on tenure.run_specs "
        "for each statement execute function gate_of_rows()"
    )
    creating = asyncio.create_task(create(other, definition=TEXT))
    await gate.waiting(1)
    pruning = asyncio.create_task(store.prune_runs(0.0))
    await gate.waiting(2, pruning)
    assert pruning.done()
    await gate.open()
    run = await creating
    assert await store.get_definition(run.run_id) == TEXT
    assert await store.prune_runs(0.0) == 0
    assert await store.get_definition(run.run_id) == TEXT
    assert (await store.check_store()).problems == ()
