"""One retry of a run at a time, also of two that begin at the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.errors import NotRunnable
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.store import Definitions
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.workflow.spec import PlanSettings
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, PATIENCE, Between, Puppet, step, workflow

FLOW = workflow(step("one"), step("two"), hosts=("a", "b"))


async def failed(
    runner: tenure.Runner, act: Puppet, flow: tenure.Workflow = FLOW, **options: Any
) -> RunSnapshot:
    act.results["one/b"] = BROKEN
    run = await runner.run(flow, tenure.RunOptions(**options))
    act.results.clear()
    act.begun.clear()
    return run


def called(run_id: str) -> tenure.RetryOptions:
    return tenure.RetryOptions(run_id=run_id)


# -- while one lives -----------------------------------------------------------------------------


async def test_a_run_that_is_being_retried_is_not_retried_and_the_other_is_named(
    memory: InMemoryStore, new_runner: NewRunner, act: Puppet
) -> None:
    runner = new_runner(memory)
    old = await failed(runner, act)
    act.hold("one/b")
    going = asyncio.create_task(runner.retry(old.run_id, called("first-retry")))
    await act.begins("one/b")
    with pytest.raises(NotRunnable) as refused:
        await new_runner(memory).retry(old.run_id, called("second-retry"))
    assert str(refused.value) == (
        f"run {old.run_id}: first-retry retries it and is running: wait for it (tenure watch "
        "first-retry) or end it (tenure cancel first-retry), then retry first-retry"
    )
    act.let_go("one/b")
    assert (await going).status is RunStatus.SUCCESS
    assert sorted(act.begun) == ["one/b", "two/a", "two/b"]
    assert len((await memory.list_runs()).items) == 2


async def test_so_it_is_for_all_of_its_lineage_and_for_no_other_run(
    memory: InMemoryStore, new_runner: NewRunner, act: Puppet
) -> None:
    """A run, its retry, and the retry of that: two of them, at any place, are one too many."""
    runner = new_runner(memory)
    old, other = await failed(runner, act), await failed(runner, act)
    act.results["one/b"] = BROKEN
    second = await runner.retry(old.run_id, called("retry-of-it"))
    uncle = await runner.retry(old.run_id, called("another-one"))
    act.results.clear()
    act.begun.clear()
    act.hold("one/b")
    going = asyncio.create_task(runner.retry(second.run_id, called("retry-of-retry")))
    await act.begins("one/b")
    for run in (old, second, uncle):
        with pytest.raises(NotRunnable, match="retry-of-retry retries it and is running"):
            await asyncio.wait_for(runner.retry(run.run_id), PATIENCE)
    act.let_go("one/b")
    assert (await runner.retry(other.run_id)).status is RunStatus.SUCCESS
    assert (await going).status is RunStatus.SUCCESS
    with pytest.raises(NotRunnable, match="leaves nothing"):
        await runner.retry("retry-of-retry")


async def test_one_that_waits_for_approval_counts(
    memory: InMemoryStore, new_runner: NewRunner, act: Puppet
) -> None:
    runner = new_runner(memory)
    asks = workflow(step("one"), hosts=("a", "b"), plan=PlanSettings(mode="manual-approve"))
    old = await failed(runner, act, asks, approved_by="ada")
    waiting = await runner.retry(old.run_id, called("waits-for-you"))
    assert waiting.status is RunStatus.QUEUED
    with pytest.raises(NotRunnable, match="tenure approve waits-for-you"):
        await runner.retry(old.run_id)
    await runner.cancel("waits-for-you")
    assert (await runner.retry(old.run_id)).status is RunStatus.QUEUED


# -- at the same moment --------------------------------------------------------------------------


async def test_of_two_that_begin_at_once_one_goes_on(
    any_store: Any, new_runner: NewRunner, act: Puppet
) -> None:
    old = await failed(new_runner(any_store), act)
    if not isinstance(any_store, Definitions):
        with pytest.raises(NotRunnable, match="keeps no definition"):
            await new_runner(any_store).retry(old.run_id)
        return
    went_on = await _two_at_once(any_store, new_runner, old)
    assert went_on.status is RunStatus.SUCCESS
    assert sorted(act.begun) == ["one/b", "two/a", "two/b"]


async def test_so_it_is_if_they_have_to_wait_for_approval(
    sqlite: SQLiteStore, new_runner: NewRunner, act: Puppet
) -> None:
    asks = workflow(step("one"), hosts=("a", "b"), plan=PlanSettings(mode="manual-approve"))
    old = await failed(new_runner(sqlite), act, asks, approved_by="ada")
    assert (await _two_at_once(sqlite, new_runner, old)).status is RunStatus.QUEUED
    assert act.begun == []


async def _two_at_once(store: Any, new_runner: NewRunner, old: RunSnapshot) -> RunSnapshot:
    """The one that goes on; of the other nothing is stored."""
    barrier = asyncio.Barrier(2)
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(
            *(
                new_runner(_meeting_before(store, barrier)).retry(old.run_id, called(name))
                for name in ("retry-nr-a", "retry-nr-b")
            ),
            return_exceptions=True,
        )
    (went_on,) = [each for each in answers if isinstance(each, RunSnapshot)]
    (refused,) = [each for each in answers if isinstance(each, NotRunnable)]
    assert f"{went_on.run_id} retries it" in str(refused)
    assert len((await store.list_runs()).items) == 2
    return went_on


# -- the same request again ------------------------------------------------------------------------


async def test_two_of_the_same_name_make_one_run_and_both_find_it(
    sqlite: SQLiteStore, new_runner: NewRunner, act: Puppet
) -> None:
    """Sent again to another gateway, say, while the first one is still at it."""
    old = await failed(new_runner(sqlite), act)
    barrier = asyncio.Barrier(2)
    async with asyncio.timeout(PATIENCE):
        one, other = await asyncio.gather(
            *(
                new_runner(_meeting_before(sqlite, barrier)).submit_retry(
                    old.run_id, called("the-retry"), update_id="request-1"
                )
                for _ in range(2)
            )
        )
    assert one.run_id == other.run_id == "the-retry"
    assert len((await sqlite.list_runs()).items) == 2
    again = new_runner(sqlite).submit_retry(old.run_id, called("the-retry"), update_id="request-1")
    assert (await again).status is RunStatus.QUEUED
    with pytest.raises(tenure.RunExists):
        await new_runner(sqlite).submit_retry(
            old.run_id, called("the-retry"), update_id="request-2"
        )


def _meeting_before(store: Any, barrier: asyncio.Barrier) -> Between:
    """Both have read the old run before either makes its retry."""
    between = Between(store)

    async def get_definition(real: Any, run_id: str) -> Any:
        text = await real(run_id)
        await barrier.wait()
        return text

    between.rules["get_definition"] = get_definition
    return between
