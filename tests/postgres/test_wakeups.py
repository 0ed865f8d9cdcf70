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
from tenure.model.query import topic_of_owner, topic_of_queue
from tenure.model.status import RunStatus
from tenure.runtime.options import Timing
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.notify import payloads
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.events import listening
from tenure.testing.factories import cancel, end_run, new_run, start_step
from tests.postgres.database import TestDatabase
from tests.postgres.pooler import NAME as NAME_OF_POOLER
from tests.runtime.puppets import Puppet, step, workflow

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


async def test_line_that_was_cut_is_made_anew(postgres_database: TestDatabase) -> None:
    async with PostgresStore(postgres_database.url) as store, listening(store, QUEUE) as heard:
        with psycopg.connect(postgres_database.url, autocommit=True) as somebody:
            somebody.execute(f"select pg_terminate_backend(pid) from ({LISTENERS}) l")
        await heard.wait()  # it listens again
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
    assert said == [[QUEUE]] * len(heard)


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
