"""What an update would make of a run is remembered while it is on its way: of one that the server
refuses, because somebody holds its run, nothing stays."""

from __future__ import annotations

import psycopg
import pytest

from tenure.model.errors import StoreUnavailable
from tenure.model.status import RunStatus
from tenure.model.update import Receipt
from tenure.stores.postgres import PostgresStore
from tenure.testing.factories import embedded_run, end_run
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow

LOCK = "select 1 from tenure.runs where run_id = %s for update"


@pytest.mark.parametrize("many", [1, 100])
async def test_end_that_was_refused_is_not_told(postgres_database: TestDatabase, many: int) -> None:
    async with PostgresStore(postgres_database.url) as store:
        new = [embedded_run("owner-a") for _ in range(many)]
        await store.update_runs(new)
        runs = [await store.get_run(each.snapshot.run_id) for each in new]
        held, *others = runs
        ends = [end_run(run) for run in runs]
        with psycopg.connect(postgres_database.url) as somebody:
            somebody.execute(LOCK, [held.run_id])
            refused, *written = await store.update_runs(ends)
        assert isinstance(refused, StoreUnavailable)
        assert "locked" in str(refused)
        assert all(isinstance(each, Receipt) for each in written)
        assert await store.get_run(held.run_id) == held
        for run in others:
            assert (await store.get_run(run.run_id)).status is RunStatus.SUCCESS

        (again,) = await store.update_runs(ends[:1])
        assert isinstance(again, Receipt)
        ended = await store.get_run(held.run_id)
        assert (ended.status, ended.version) == (RunStatus.SUCCESS, held.version + 1)
