"""Pruning a server's store, beside others who use it, and whoever is stopped where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.model.errors import RunNotFound
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.retention import ended
from tests.postgres.database import TestDatabase
from tests.worker_processes.wrong_clock import with_clock

pytestmark = pytest.mark.slow

A_MONTH_AHEAD = f"+{31 * 86400}s"


@pytest.fixture
def database(postgres_going: TestDatabase) -> TestDatabase:
    """Whose clock goes as clocks do; empty."""
    postgres_going.empty()
    return postgres_going


async def test_clock_of_the_machine_that_prunes_is_no_matter(database: TestDatabase) -> None:
    async with PostgresStore(database.url) as store:
        run = await ended(store)
        pruned = subprocess.run(
            [
                str(Path(sys.executable).with_name("tenure")),
                *("store", "prune", "--older-than", "30d", "--store", database.url),
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
