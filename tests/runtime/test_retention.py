"""Runs that ended long ago leave by themselves: few at a time, never one that goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure.runtime.retention import PruneLoop, PruneRate, RetentionPolicy, remove_old
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, Outage, Puppet, step, workflow

AT_ONCE = RetentionPolicy(seconds=0.001, per_second=1000)
ONE = workflow(step("one"))


@given(per_second=st.integers(1, 100_000))
def test_budget_of_a_second_is_kept_however_much_is_old(per_second: int) -> None:
    policy = RetentionPolicy(seconds=60, per_second=per_second)
    assert policy.batch / policy.wait_after(policy.batch) <= per_second * 1.000001
    assert 1 <= policy.batch <= 100
    assert policy.wait_after(policy.batch - 1) >= 1.0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"seconds": 0}, "seconds"),
        ({"seconds": float("inf")}, "seconds"),
        ({"seconds": "30d"}, "seconds"),
        ({"seconds": 60, "per_second": 0}, "per_second"),
        ({"seconds": 60, "per_second": 1.5}, "per_second"),
    ],
)
def test_policy_that_cannot_be_meant_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(tenure.InvalidOptions, match=f"^{named} must be"):
        RetentionPolicy(**fields)


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


async def test_all_that_is_old_is_removed_at_the_same_rate() -> None:
    """As a command does it, which ends when nothing old is left."""
    store, waited, told = OldRuns(60), list[float](), list[int]()

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    assert await remove_old(store, 3600, PruneRate(100), told.append, wait) == 60
    assert store.asked == [(3600, 25)] * 4
    assert waited == pytest.approx([0.25, 0.25, 0.1], abs=0.05)
    assert told == [25, 50, 60]


async def test_outage_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure.runtime")
    removed = asyncio.Event()
    store = Between(OldRunsIn(removed))
    outage = Outage(store, "prune_runs")
    outage.on = True
    forgetting = PruneLoop(store, AT_ONCE)
    forgetting.open()
    await outage.refuses(2)
    outage.on = False
    async with asyncio.timeout(PATIENCE):
        await removed.wait()
    await forgetting.close()
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "the network is down" in said[0]
    assert "again" in said[1]


class OldRunsIn(OldRuns):
    durable = True

    def __init__(self, removed: asyncio.Event) -> None:
        super().__init__(1)
        self._removed = removed

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        count = await super().prune_runs(older_than, limit=limit)
        if not self.left:
            asyncio.get_running_loop().call_soon(self._removed.set)
        return count


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
    act.hold("long/local")
    named = tenure.RunOptions(run_id="a-run-that-goes-on")
    going = asyncio.create_task(runner.run(workflow(step("long")), named))
    await act.begins("long/local")
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
