"""Runs that ended long ago leave by themselves: few at a time, never one that goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure.runtime.options import RetentionPolicy
from tenure.runtime.retention import PruneLoop
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, Puppet, step, workflow

AT_ONCE = RetentionPolicy(seconds=0.001, per_second=1000)
ONE = workflow(step("one"))


@given(per_second=st.integers(1, 100_000))
def test_budget_of_a_second_is_kept_however_much_is_old(per_second: int) -> None:
    policy = RetentionPolicy(seconds=60, per_second=per_second)
    assert policy.batch / policy.wait_after(policy.batch) <= per_second * 1.000001
    assert 1 <= policy.batch <= 100
    assert policy.wait_after(policy.batch - 1) >= 1.0


class OldRuns:
    """``Retention``: so many that ended long ago."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.asked: list[tuple[float, int]] = []

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        self.asked.append((older_than, limit))
        removed = min(limit, self.left)
        self.left -= removed
        return removed


async def test_small_batches_with_a_pause_after_each_until_nothing_is_left() -> None:
    store, waits = OldRuns(60), asyncio.Queue[float](1)
    policy = RetentionPolicy(seconds=3600, per_second=100)
    forgetting = PruneLoop(store, policy, waits.put)
    forgetting.open()
    async with asyncio.timeout(PATIENCE):
        waited = [await waits.get() for _ in range(3)]
    await forgetting.close()
    assert store.asked[:3] == [(3600, 25)] * 3
    assert store.left == 0
    assert waited[0] == pytest.approx(0.25, abs=0.1)
    assert waited[2] > 50


async def test_outage_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store, waits = Between(InMemoryStore()), asyncio.Queue[float](1)
    store.fails("prune_runs", tenure.StoreUnavailable("the network is down"))
    retention: Any = store
    forgetting = PruneLoop(retention, AT_ONCE, waits.put)
    forgetting.open()
    async with asyncio.timeout(PATIENCE):
        for _ in range(3):
            await waits.get()
    await forgetting.close()
    first, last = caplog.messages
    assert "the network is down" in first
    assert "again" in last


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_runner_removes_what_is_old_and_leaves_what_goes_on(
    kind: str, memory: InMemoryStore, sqlite: SQLiteStore, new_runner: NewRunner, act: Puppet
) -> None:
    store = Between(memory if kind == "memory" else sqlite)
    removed = asyncio.Event()

    async def noticed(real: Any, *args: Any, **kwargs: Any) -> int:
        count: int = await real(*args, **kwargs)
        if count:
            removed.set()
        return count

    store.rules["prune_runs"] = noticed
    runner = new_runner(store)
    old = await runner.run(ONE)
    named = tenure.RunOptions(run_id="a-run-that-goes-on")
    going = await act.holding(runner.run(workflow(step("long")), named), "long/local")
    async with new_runner(store, retention=AT_ONCE), asyncio.timeout(PATIENCE):
        await removed.wait()
    with pytest.raises(tenure.RunNotFound):
        await runner.get_run(old.run_id)
    assert (await runner.get_run("a-run-that-goes-on")).status == "running"
    act.let_go("long/local")
    assert (await going).status == "success"


async def test_store_that_cannot_forget_is_said_to_be(
    tmp_path: Any, new_runner: NewRunner, caplog: pytest.LogCaptureFixture
) -> None:
    async with FileStore(tmp_path) as store:
        await new_runner(store, retention=AT_ONCE).open()
    assert "cannot remove runs" in caplog.text
