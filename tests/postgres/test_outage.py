"""A run whose server goes away and comes back: its task goes on, the next one waits, nothing is
done twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.errors import StoreUnavailable
from tenure.stores.postgres import PostgresStore
from tests import beside
from tests.postgres.database import migrated
from tests.postgres.server import Server
from tests.runtime.puppets import Between, Puppet, step, workflow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TWO = workflow(step("one"), step("two"))
RUN_ID = "a-run-in-an-outage"


class Refusals:
    """How often the store could not take the updates of a run."""

    def __init__(self, store: Between) -> None:
        self.news = asyncio.Semaphore(0)
        store.rules["update_runs"] = self._noticed

    async def _noticed(self, real: Any, *args: Any) -> Any:
        try:
            return await real(*args)
        except StoreUnavailable:
            self.news.release()
            raise


A_MINUTE = 60.0


def test_run_outlives_a_minute_without_its_server() -> None:
    """The minute passes while other tests are at work."""
    said = beside.outcome()
    assert "1 passed" in said, said


@pytest.mark.long
async def test_run_outlives_a_server_that_was_away() -> None:
    act = Puppet()
    act.hold("one/local")
    patient = tenure.Timing(lease_duration=600, renew_interval=20)
    with Server(durable=True) as server:
        server.execute("create database away")
        await migrated(server.url("away"))
        async with PostgresStore(server.url("away", statement_timeout="5", prepared="yes")) as real:
            store = Between(real)
            refusals = Refusals(store)
            async with tenure.Runner(store, actions={"act": act}, timing=patient) as runner:
                named = tenure.RunOptions(run_id=RUN_ID)
                going = asyncio.create_task(runner.run(TWO, named))
                await act.begins("one/local")
                server.kill()
                act.let_go("one/local")
                until = asyncio.get_running_loop().time() + A_MINUTE
                while asyncio.get_running_loop().time() < until:
                    await refusals.news.acquire()
                assert act.begun == ["one/local"]
                await asyncio.to_thread(server.start)
                run = await going
            events = await real.read_events(RUN_ID)
    assert run.status == "success"
    assert act.begun == ["one/local", "two/local"]
    assert sorted({event.version for event in events}) == list(range(1, run.version + 1))
