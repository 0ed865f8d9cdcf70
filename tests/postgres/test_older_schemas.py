"""A store as an older version left it is brought up to date, and goes on with all that it has."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, StepChange
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.migrating import newest_schema
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.contracts.changes import Reader
from tenure.testing.factories import (
    HOSTS,
    end_run,
    finish_host,
    finish_step,
    owner_update,
    start_step,
)
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

ODD = 'a NUL \0, a "quote", a \\ and a\nnew line'
HANDLER = StepState(index=2, name="tell", kind=StepKind.HANDLER, hosts={"web1": HostState()})

STEPS_AND_TASKS = """
create table tenure.steps (
  seq bigint not null, step integer not null, body json not null, added_hosts json,
  primary key (seq, step)) with (fillfactor = 50);
create table tenure.tasks (
  seq bigint not null, step integer not null, host text collate "C" not null,
  item integer not null, body json not null,
  primary key (seq, step, host, item)) with (fillfactor = 40);
"""


@pytest.fixture
def url(postgres_server: Server) -> str:
    postgres_server.execute("drop database if exists older with (force)")
    postgres_server.execute("create database older")
    return postgres_server.url("older")


async def _runs(store: PostgresStore) -> list[RunSnapshot]:
    """Queued, begun, in a loop, with a handler, ended, with a text that the server cannot hold."""
    begun = await write(store, start_step(await create_embedded(store)))
    odd = await write(store, finish_host(begun, stdout=ODD, vars={"said": ODD}))
    return [
        await create(store),
        await write(store, start_step(await create_embedded(store))),
        odd,
        await _in_a_loop(store),
        await _ended_with_a_handler(store),
    ]


async def _in_a_loop(store: PostgresStore) -> RunSnapshot:
    run = await write(store, start_step(await create_embedded(store)))
    for position, status in enumerate((HostStatus.SUCCESS, HostStatus.RUNNING)):
        items = {position: ItemChange(status=HostStatus.RUNNING, attempts=1)}
        run = await write(store, _items(run, items))
        if status is not HostStatus.RUNNING:
            run = await write(store, _items(run, {position: ItemChange(status=status)}))
    return run


def _items(run: RunSnapshot, items: dict[int, ItemChange]) -> Any:
    step = StepChange(hosts={HOSTS[0]: HostChange(items=items)})
    return owner_update(run, Changes(steps={0: step}))


async def _ended_with_a_handler(store: PostgresStore) -> RunSnapshot:
    run = await write(store, start_step(await create_embedded(store)))
    run = await write(store, finish_step(run))
    starting = StepChange(
        status=StepStatus.RUNNING,
        plan=HANDLER,
        hosts={"web1": HostChange(status=HostStatus.RUNNING, attempts=1)},
    )
    run = await write(store, owner_update(run, Changes(steps={2: starting})))
    run = await write(store, finish_step(run, 2))
    return await write(store, end_run(run, RunStatus.CANCELED))


async def test_all_is_there_afterwards(url: str) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
        runs = await _runs(store)
    _back_to_schema_4(url)
    async with PostgresStore(url) as store:
        assert (await store.check_store()).schema == 4
        assert (await store.migrate_store()).schema == newest_schema()
        assert (await store.check_store()).problems == ()
        assert [await store.get_run(run.run_id) for run in runs] == runs
        feed = Reader(store)
        run_ids = [run.run_id for run in (*runs, await create(store))]
        await feed.until({run_id: await store.read_events(run_id) for run_id in run_ids})


async def test_runs_go_on(url: str) -> None:
    async with PostgresStore(url) as store:
        await store.migrate_store()
        _, begun, _, looping, _ = await _runs(store)
    _back_to_schema_4(url)
    async with PostgresStore(url) as store:
        await store.migrate_store()
        begun = await write(store, finish_step(begun))
        assert [host.status for host in begun.steps[0].hosts.values()] == [HostStatus.SUCCESS] * 2
        looping = await write(store, _items(looping, {1: ItemChange(status=HostStatus.FAILED)}))
        done, failed = looping.steps[0].hosts[HOSTS[0]].items
        assert (done.status, failed.status) == (HostStatus.SUCCESS, HostStatus.FAILED)


def _back_to_schema_4(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        _put_steps_and_tasks_apart(connection)
        connection.execute("drop function tenure.sealed(text)")
        connection.execute("drop table tenure.seal")
        connection.execute("drop index tenure.journal_by_change")
        connection.execute("create index journal_by_change on tenure.journal (changed_in)")
        connection.execute("delete from tenure.migrations where number > 4")


def _put_steps_and_tasks_apart(connection: psycopg.Connection) -> None:
    steps: dict[tuple[int, int], tuple[Any, Any]] = {}
    tasks: dict[tuple[int, int, str, int], Any] = {}
    versions = connection.execute(
        "select seq, progress from tenure.journal where progress is not null order by version"
    ).fetchall()
    for seq, text in versions:
        changed_steps, changed_tasks = json.loads(text)
        for step, body, added in changed_steps:
            steps[seq, step] = body, added or steps.get((seq, step), (None, None))[1]
        for step, host, item, body in changed_tasks:
            tasks[seq, step, host, item] = body
    connection.execute(STEPS_AND_TASKS)
    for place, (body, added) in steps.items():
        hosts = None if added is None else json.dumps(added)
        connection.execute(
            "insert into tenure.steps values (%s, %s, %s, %s)", (*place, json.dumps(body), hosts)
        )
    for where, body in tasks.items():
        connection.execute(
            "insert into tenure.tasks values (%s, %s, %s, %s, %s)", (*where, json.dumps(body))
        )
    connection.execute("alter table tenure.journal drop column progress")
