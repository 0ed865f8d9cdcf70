"""One retry of a run at a time, also of two that begin at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import tenure
from tenure.model.errors import NotRunnable
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import RunStatus
from tenure.ports.definitions import Definitions
from tenure.runtime.relatives import Relatives, foremost, gives_way_to
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing import factories
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
    act.results["two/b"] = BROKEN
    went_on = await _two_at_once(any_store, new_runner, old)
    assert went_on.status is RunStatus.FAILED
    assert sorted(act.begun) == ["one/b", "two/a", "two/b"]
    with pytest.raises(NotRunnable) as refused:
        await new_runner(any_store).retry("retry-nr-b")
    assert str(refused.value) == (
        "run retry-nr-b: never began, and retry-nr-a went on instead: retry retry-nr-a"
    )
    act.results.clear()
    act.begun.clear()
    assert (await new_runner(any_store).retry("retry-nr-a")).status is RunStatus.SUCCESS
    assert act.begun == ["two/b"]


async def test_one_that_never_began_can_be_retried_as_long_as_no_other_went_on(
    memory: InMemoryStore, new_runner: NewRunner, act: Puppet
) -> None:
    runner = new_runner(memory)
    plan = PlanSettings(mode="manual-approve")
    asks = workflow(step("one"), step("two"), hosts=("a", "b"), plan=plan)
    old = await failed(runner, act, asks, approved_by="ada")
    fork = await runner.retry(old.run_id, tenure.RetryOptions(limit=["a"], approved_by="ada"))
    for run_id, retried in (("nobody-came", fork.run_id), ("nor-now-here", "nobody-came")):
        await runner.retry(retried, called(run_id))
        await runner.cancel(run_id)
    options = tenure.RetryOptions(run_id="went-on-now", limit=["b"], approved_by="ada")
    assert (await runner.retry("nor-now-here", options)).status is RunStatus.SUCCESS
    for run_id in ("nobody-came", "nor-now-here"):
        with pytest.raises(NotRunnable, match="and went-on-now went on instead"):
            await runner.retry(run_id)


async def test_so_it_is_if_they_have_to_wait_for_approval(
    sqlite: SQLiteStore, new_runner: NewRunner, act: Puppet
) -> None:
    asks = workflow(step("one"), hosts=("a", "b"), plan=PlanSettings(mode="manual-approve"))
    old = await failed(new_runner(sqlite), act, asks, approved_by="ada")
    assert (await _two_at_once(sqlite, new_runner, old)).status is RunStatus.QUEUED
    assert act.begun == []


async def _two_at_once(store: Any, new_runner: NewRunner, old: RunSnapshot) -> RunSnapshot:
    """The one that goes on; the other has ended and says why."""
    barrier = asyncio.Barrier(2)
    async with asyncio.timeout(PATIENCE):
        refused, went_on = await asyncio.gather(
            *(
                new_runner(_meeting(store, barrier)).retry(old.run_id, called(name))
                for name in ("retry-nr-b", "retry-nr-a")
            ),
            return_exceptions=True,
        )
    assert isinstance(refused, NotRunnable), "the smaller id comes first"
    assert "retry-nr-a retries it" in str(refused)
    withdrawn = await store.get_run("retry-nr-b")
    assert withdrawn.status is RunStatus.CANCELED
    assert withdrawn.message == "canceled before it began: retry-nr-a retries the same run"
    assert isinstance(went_on, RunSnapshot)
    return went_on


def _meeting(store: Any, barrier: asyncio.Barrier) -> Between:
    """Both look before either is created, and both are created before either looks again."""
    between = Between(store)
    looks = iter(range(100))

    async def list_runs(real: Any, where: Any = tenure.RunFilter(), **rest: Any) -> Any:
        if where.workflow_name is None:  # a reconciler's
            return await real(where, **rest)
        look = next(looks)
        if look == 1:
            await barrier.wait()
        page = await real(where, **rest)
        if look == 0:
            await barrier.wait()
        return page

    between.rules["list_runs"] = list_runs
    return between


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
    """Both ask whether it is there before either makes it."""
    between = Between(store)
    asked = iter(range(100))

    async def update_run(real: Any, *args: Any) -> Any:
        try:
            return await real(*args)
        finally:
            if next(asked) == 0:
                await barrier.wait()

    between.rules["update_run"] = update_run
    return between


async def test_one_that_gave_way_is_told_so_again(
    memory: InMemoryStore, new_runner: NewRunner, act: Puppet
) -> None:
    old = await failed(new_runner(memory), act)
    between = Between(memory)
    looks = iter(range(100))

    async def list_runs(real: Any, where: Any = tenure.RunFilter(), **rest: Any) -> Any:
        if where.workflow_name is not None and next(looks) == 1:
            await memory.create_run(
                factories.new_run(
                    run_id="a-retry-1", workflow_name=old.workflow_name, retry_of=old.run_id
                )
            )
        return await real(where, **rest)

    between.rules["list_runs"] = list_runs
    for _ in range(2):
        with pytest.raises(NotRunnable, match="a-retry-1 retries"):
            await new_runner(between).submit_retry(
                old.run_id, called("retry-nr-b"), update_id="request-1"
            )
    assert (await memory.get_run("retry-nr-b")).status is RunStatus.CANCELED


@pytest.mark.parametrize("then", ["enters", "gives way"])
async def test_who_comes_first_waits_for_the_others_at_the_door(
    memory: InMemoryStore, then: str
) -> None:
    """The other may have looked before this one was there."""
    old = RunSummary(run_id="the-old-run", workflow_name="deploy")
    new = factories.new_run(
        run_id="retry-nr-b",
        workflow_name="deploy",
        retry_of=old.run_id,
        lease=factories.lease_request(),
    )
    await memory.create_run(new)
    between = Between(memory)

    async def list_runs(real: Any, *args: Any, **rest: Any) -> Any:
        page = await real(*args, **rest)
        other = await memory.get_run("retry-nr-b")
        if other.status is RunStatus.QUEUED:
            ends = RunStatus.RUNNING if then == "enters" else RunStatus.CANCELED
            await memory.update_run(factories.change_run(other, status=ends))
        return page

    between.rules["list_runs"] = list_runs
    first = await Relatives(between, old).in_front_of("retry-nr-a")
    assert (first and first.run_id) == ("retry-nr-b" if then == "enters" else None)


def test_who_is_refused_is_sent_to_the_one_that_all_others_give_way_to() -> None:
    queued, running = RunStatus.QUEUED, RunStatus.RUNNING
    runs = [
        RunSummary(run_id=name, workflow_name="w", status=status)
        for name, status in (("nr-2", queued), ("nr-3", running), ("nr-1", queued))
    ]
    assert foremost(runs).run_id == "nr-3"
    assert foremost([run for run in runs if run.status is queued]).run_id == "nr-1"
    assert gives_way_to("nr-4", [runs[0], runs[2]]) is runs[2]


# -- the rule at the door, in every order ---------------------------------------------------------

State = tuple[str, ...]
"""Of each process: absent, door, admitted, inside, gone."""
SEEN_AS = {
    "door": RunStatus.QUEUED,
    "admitted": RunStatus.QUEUED,  # it has looked, and its record does not say so yet
    "inside": RunStatus.RUNNING,
}


def _moves(state: State) -> Iterator[State]:
    """What each process may do next, by the rule; a wait changes nothing and is left out."""
    for number, now in enumerate(state):
        after = {"absent": "door", "admitted": "inside"}.get(now)
        if now == "door":
            living = [
                RunSummary(run_id=str(other), workflow_name="w", status=SEEN_AS[at])
                for other, at in enumerate(state)
                if other != number and at in SEEN_AS
            ]
            if gives_way_to(str(number), living) is not None:
                after = "gone"
            elif not living:
                after = "admitted"
        if after is not None:
            yield (*state[:number], after, *state[number + 1 :])


def test_in_every_order_of_three_exactly_one_enters() -> None:
    start: State = ("absent",) * 3
    seen, open_ends, dead_ends = {start}, [start], []
    while open_ends:
        state = open_ends.pop()
        assert sum(each in ("admitted", "inside") for each in state) <= 1, state
        following = set(_moves(state))
        if not following:
            dead_ends.append(state)
        open_ends += following - seen
        seen |= following
    assert len(seen) > 40, "they were not let loose"
    assert all(sorted(state) == ["gone", "gone", "inside"] for state in dead_ends), dead_ends
