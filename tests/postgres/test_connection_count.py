"""How many connections a process has at most, as ``docs/operations/postgresql.md`` tells it. They
are kept once made, so counting them afterwards gives the most there were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

import tenure
from tenure.model.query import topic_of_owner, topic_of_queue
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import LogKey
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create_embedded, lease_of
from tenure.testing.contracts.events import listening
from tests.postgres.database import TestDatabase
from tests.runtime.puppets import PATIENCE, Puppet, step, workflow
from tests.worker.conftest import NEXT

pytestmark = pytest.mark.slow

KEY = LogKey(step=0, host="local", stream="stdout")
AT_ONCE = 12


@pytest.fixture(params=[1, 3])
def connections(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def counted(postgres_going: TestDatabase, connections: int) -> str:
    postgres_going.empty()
    return f"{postgres_going.url}?connections={connections}&application_name=counted"


async def press(store: PostgresStore) -> None:
    """Everything that a store does, more of it at once than it has connections for."""
    run = await create_embedded(store)
    me = WorkerInfo(owner_id="somebody")
    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE):
            group.create_task(store.list_runs())
            group.create_task(store.revoke_token(f"none-{number}"))
            group.create_task(store.renew_leases([lease_of(run)], 60.0))
            group.create_task(store.heartbeat(me, 60.0))
            group.create_task(store.append(run.run_id, lease_of(run).fencing, KEY, 0, b"x"))


def count(database: TestDatabase) -> int:
    with psycopg.connect(database.url) as somebody:
        (found,) = somebody.execute(
            "select count(*) from pg_stat_activity where application_name = 'counted'"
        ).fetchone() or (0,)
    return int(found)


async def press_until_there_are(number: int, store: PostgresStore, database: TestDatabase) -> None:
    """A pool grows while calls wait for it; it never grows beyond its size."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await press(store)
            found = await asyncio.to_thread(count, database)
            assert found <= number
            if found == number:
                return


@asynccontextmanager
async def at_work(worker: tenure.Worker) -> AsyncIterator[None]:
    working = asyncio.create_task(worker.run())
    yield
    worker.drain(at_once=True)
    async with asyncio.timeout(PATIENCE):
        await working


async def test_a_gateway_has_two_for_each_of_connections_and_three(
    counted: str, postgres_going: TestDatabase, connections: int
) -> None:
    """That is, a process with a store that executes nothing itself."""
    async with (
        PostgresStore(counted) as store,
        listening(store, topic_of_owner("a")),
        listening(store, topic_of_queue("default")),
    ):
        await press_until_there_are(2 * connections + 3, store, postgres_going)


@pytest.mark.parametrize(("wakeups", "more"), [("yes", 5), ("no", 4)])
async def test_a_worker_has_two_for_each_of_connections_and_five(
    counted: str, postgres_going: TestDatabase, connections: int, wakeups: str, more: int
) -> None:
    act = Puppet()
    act.hold("one/local")
    async with PostgresStore(f"{counted}&wakeups={wakeups}") as store:
        worker = tenure.Worker(store, actions={"act": act}, timing=NEXT)
        async with at_work(worker), tenure.Runner(store, actions={"act": act}) as runner:
            await runner.submit(workflow(step("one")))
            await act.begins("one/local")
            await press_until_there_are(2 * connections + more, store, postgres_going)
            await press(store)
            assert count(postgres_going) == 2 * connections + more
            act.let_go("one/local")
