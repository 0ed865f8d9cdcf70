"""Hints between processes: they reach every store on the database, cost writers nothing, and come
again after the line was cut."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

import tenure
from tenure.model.errors import StoreUnavailable
from tenure.model.query import topic_of_owner, topic_of_queue
from tenure.model.status import RunStatus
from tenure.runtime.options import Timing
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.announcing import payloads
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.events import listening
from tenure.testing.factories import cancel, end_run, new_run, start_step
from tests.postgres.database import TestDatabase
from tests.postgres.pooler import NAME as NAME_OF_POOLER
from tests.postgres.server import Server
from tests.runtime.puppets import PATIENCE, Puppet, step, workflow

pytestmark = pytest.mark.slow

QUEUE = topic_of_queue("default")
LISTENERS = (
    "select pid from pg_stat_activity where query like 'listen tenure%' and datname = 'shared'"
    f" and application_name <> '{NAME_OF_POOLER}'"
)


async def test_hint_reaches_another_store(postgres_database: TestDatabase) -> None:
    writer, reader = PostgresStore(postgres_database.url), PostgresStore(postgres_database.url)
    async with writer, reader, listening(reader, QUEUE) as heard:
        await create(writer)
        await heard.wait()


async def test_hint_goes_out_before_the_store_is_closed(postgres_database: TestDatabase) -> None:
    async with PostgresStore(postgres_database.url) as reader, listening(reader, QUEUE) as heard:
        async with PostgresStore(postgres_database.url) as writer:
            await create(writer)
        await heard.wait()


async def test_line_that_was_cut_is_made_anew(postgres_database: TestDatabase) -> None:
    async with PostgresStore(postgres_database.url) as store, listening(store, QUEUE) as heard:
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            somebody.execute(f"select pg_terminate_backend(pid) from ({LISTENERS}) l")
        await heard.wait()  # it listens again
        heard.clear()
        await create(store)
        await heard.wait()


async def test_listener_that_fails_is_told_again(postgres_database: TestDatabase) -> None:
    """And whoever else listens."""
    told = 0

    def fail() -> None:
        nonlocal told
        told += 1
        if told == 2:
            raise ZeroDivisionError("a bug")

    async with PostgresStore(postgres_database.url) as store, listening(store, QUEUE) as heard:
        async with store.listen([QUEUE], fail), asyncio.timeout(PATIENCE):
            while told < 4:
                await create(store)
                await asyncio.sleep(0.05)
        heard.clear()
        await create(store)
        await heard.wait()


async def test_nothing_listens_if_that_is_not_wanted(postgres_database: TestDatabase) -> None:
    store = PostgresStore(f"{postgres_database.url}?wakeups=no&application_name=deaf")
    async with store, store.listen([QUEUE], lambda: None):
        await create(store)
        with psycopg.connect(postgres_database.url) as somebody:
            assert somebody.execute(f"{LISTENERS} and application_name = 'deaf'").fetchall() == []


async def test_owners_writes_announce_nothing_and_many_births_announce_little(
    postgres_database: TestDatabase,
) -> None:
    async with PostgresStore(postgres_database.url) as store:
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            somebody.execute("listen tenure; listen tenure_queue")
            run = await create_embedded(store)
            run = await write(store, start_step(run))
            await write(store, end_run(run, RunStatus.FAILED))
            await asyncio.gather(*(store.create_run(new_run()) for _ in range(200)))
            await store.close()
            somebody.execute("select 1")  # what was announced by now comes with the answer
            heard = [each.payload for each in somebody.notifies(timeout=0)]
    assert 1 <= len(heard) < 100
    said = [json.decode(payload) for payload in heard]
    topics = [each["topics"] if isinstance(each, dict) else each for each in said]
    assert topics == [[QUEUE]] * len(heard)


async def test_a_quiet_process_tells_in_the_very_commit_that_creates(
    postgres_database: TestDatabase,
) -> None:
    """(That a busy one does not, the test above would notice.)"""
    async with PostgresStore(postgres_database.url) as store:
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            somebody.execute("listen tenure_queue")
            await create(store)
            (hint,) = somebody.notifies(timeout=PATIENCE, stop_after=1)
            asked = "select query from pg_stat_activity where pid = %s"
            (query,) = somebody.execute(asked, (hint.pid,)).fetchone() or ("",)
    assert "insert into tenure.runs " in query


async def test_who_waits_for_no_run_is_not_woken_by_those_of_others(
    postgres_database: TestDatabase,
) -> None:
    async with PostgresStore(postgres_database.url) as store:
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            somebody.execute("listen tenure")
            run = await create_embedded(store)
            await create(store)
            await write(store, cancel(run))
            await store.close()
            somebody.execute("select 1")
            heard = [json.decode(each.payload) for each in somebody.notifies(timeout=0)]
    assert heard == [[topic_of_owner("owner-a")]]


async def test_who_begins_to_listen_for_more_hears_it(postgres_database: TestDatabase) -> None:
    store = PostgresStore(postgres_database.url)
    async with store, listening(store, topic_of_owner("owner-a")) as asked:
        async with listening(store, QUEUE) as heard:
            await create(store)
            await heard.wait()
        asked.clear()
        await write(store, cancel(await create_embedded(store)))
        await asked.wait()


async def test_owner_hears_of_a_cancel_request_long_before_it_looks(
    postgres_database: TestDatabase,
) -> None:
    act = Puppet()
    act.hold("long/local")
    slow = Timing(control_interval=3600.0, renew_interval=20.0)
    store = PostgresStore(postgres_database.url)
    async with store, tenure.Runner(store, timing=slow, actions={"act": act}) as runner:
        named = tenure.RunOptions(run_id="a-run-to-cancel")
        going = asyncio.create_task(runner.run(workflow(step("long")), named))
        await act.begins("long/local")
        async with tenure.Runner(postgres_database.url) as operator:
            await operator.cancel("a-run-to-cancel")
        async with asyncio.timeout(15):
            assert (await going).status == "canceled"


@given(topics=st.sets(st.text(max_size=3000), max_size=30))
def test_hints_are_split_as_the_server_wants_them(topics: set[str]) -> None:
    sent = list(payloads(topics))
    assert all(len(payload.encode()) < 8000 for payload in sent)
    told = {topic for payload in sent for topic in json.decode(payload)}
    assert told == {
        topic for topic in topics if "\0" not in topic and len(json.encode(topic)) < 7000
    }


async def test_one_commit_at_a_time_carries_hints_and_no_other_waits_for_it() -> None:
    """Each comes from a process that has had nothing to say, and would carry its hints. The first
    waits for a replica that never answers."""
    with Server(synchronous_standby_names="nobody") as server:
        server.execute("create database riding")
        async with (
            PostgresStore(server.url("riding", options="-csynchronous_commit%3Don")) as slow,
            PostgresStore(server.url("riding", options="-csynchronous_commit%3Dlocal")) as other,
        ):
            await other.migrate_store()
            async with listening(other, QUEUE) as heard:
                kept_waiting = asyncio.create_task(create(slow))
                await _waits_for_its_replica(server)
                await asyncio.wait_for(create(other), PATIENCE)
                assert not kept_waiting.done()
                server.execute(f"select pg_cancel_backend(pid) from ({WAITING}) w")
                with pytest.raises(StoreUnavailable):
                    await kept_waiting
                await heard.wait()


WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep'"


async def _waits_for_its_replica(server: Server) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as somebody:
        async with asyncio.timeout(PATIENCE):
            while not somebody.execute(WAITING).fetchone():
                await asyncio.sleep(0)
