"""Retries: linked runs that do what is left, with all that the old run had; one at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.errors import NotRunnable
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.execution import TaskResult
from tenure.ports.store import Definitions
from tenure.runtime.recipe import decode_definition
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.workflow.spec import PlanSettings
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, PATIENCE, Between, Puppet, step, workflow

HOSTS = ("a", "b", "c")
THREE = workflow(step("one"), step("two"), step("three"), hosts=HOSTS)


async def failing(
    runner: tenure.Runner, act: Puppet, played: tenure.Workflow, *labels: str, **options: Any
) -> RunSnapshot:
    """A run in which these fail; afterwards nothing does."""
    act.results |= dict.fromkeys(labels, BROKEN)
    run = await runner.run(played, tenure.RunOptions(**options))
    for label in labels:
        del act.results[label]
    act.begun.clear()
    return run


HOOK = CallbackTarget(name="hook", url="https://h.example", events=("run",))


class TestWhatIsLeft:
    async def test_what_failed_and_what_was_not_reached_and_nothing_else(
        self, runner: tenure.Runner, act: Puppet
    ) -> None:
        old = await failing(runner, act, THREE, "two/b")
        run = await runner.retry(old.run_id)
        assert (run.status, run.retry_of) == (RunStatus.SUCCESS, old.run_id)
        assert run.run_id != old.run_id
        assert act.begun == ["two/b", "three/a", "three/b", "three/c"]
        first, second, _ = run.steps
        assert (first.status, first.message) == ("skipped", "no host is left for it")
        assert list(second.hosts) == ["b"]
        assert await runner.get_run(old.run_id) == old, "the old run is history"

    async def test_what_earlier_runs_exported_is_there_where_their_step_ends(
        self, runner: tenure.Runner, act: Puppet
    ) -> None:
        for host in HOSTS:
            act.results[f"one/{host}"] = TaskResult(vars={"WHO": host, "ALL": "same"})
        old = await failing(runner, act, THREE, "two/b")
        await runner.retry(old.run_id)
        seen = act.tasks["three/a"].vars
        assert (seen["WHO"], seen["ALL"]) == ("a", "same")
        assert seen["hosts"]["c"]["WHO"] == "c"
        assert act.tasks["two/b"].vars["WHO"] == "b"

    async def test_a_run_that_was_cut_short_is_retried_like_any_other(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(any_store)
        going = await act.holding(runner.run(THREE, tenure.RunOptions(run_id="cut-short")), "two/b")
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        act.let_go("two/b")
        act.begun.clear()
        if not isinstance(any_store, Definitions):
            with pytest.raises(NotRunnable, match="keeps no definition"):
                await runner.retry("cut-short")
            return
        run = await new_runner(any_store).retry("cut-short")
        assert run.status is RunStatus.SUCCESS
        assert "two/b" in act.begun
        assert not [label for label in act.begun if label.startswith("one/")]


class TestWhatItTakesAlong:
    async def test_variables_labels_callbacks_limit_and_timeout(
        self, memory: InMemoryStore, runner: tenure.Runner, act: Puppet
    ) -> None:
        given: dict[str, Any] = {
            "vars": {"release": "1.4"},
            "labels": {"team": "web"},
            "callbacks": [HOOK],
            "limit": ["a", "b"],
            "timeout": 60.0,
            "queue": "night",
        }
        old = await failing(runner, act, THREE, "two/b", **given)
        run = await runner.retry(old.run_id, tenure.RetryOptions(run_id="second-try"))
        assert run.run_id == "second-try"
        assert (run.vars, run.labels, run.callbacks) == (old.vars, old.labels, old.callbacks)
        assert (run.timeout, run.queue, run.workflow_digest) == (60.0, "night", old.workflow_digest)
        assert act.begun == ["two/b", "three/a", "three/b"]
        assert act.tasks["three/a"].vars["release"] == "1.4"
        told = (await memory.list_deliveries(run_id="second-try")).items
        assert [each.event.type for each in told] == ["run.success", "run.running", "run.queued"]

    async def test_secrets_have_to_be_given_again(self, runner: tenure.Runner, act: Puppet) -> None:
        secret = workflow(step("one"), secrets=["token"])
        old = await failing(runner, act, secret, "one/local", secrets={"token": "s3cr3t-value"})
        with pytest.raises(tenure.InvalidWorkflow, match="token"):
            await runner.retry(old.run_id)
        given = tenure.RetryOptions(secrets={"token": "s3cr3t-value"})
        assert (await runner.retry(old.run_id, given)).status is RunStatus.SUCCESS
        assert act.tasks["one/local"].vars["token"] == "s3cr3t-value"

    async def test_it_wants_an_approval_of_its_own(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        """And whoever goes on with it does what is left, no more: its definition says so."""
        runner = new_runner(memory)
        asks = workflow(step("one"), hosts=HOSTS, plan=PlanSettings(mode="manual-approve"))
        old = await failing(runner, act, asks, "one/b", approved_by="ada")
        waiting = await runner.retry(old.run_id)
        assert (waiting.status, waiting.approval.by) == (RunStatus.QUEUED, None)
        text = await memory.get_definition(waiting.run_id)
        continues = decode_definition(text or "").continues
        assert continues is not None
        assert list(continues.past[0].done) == ["a", "c"]
        await runner.approve(waiting.run_id, by="bob")
        run = await new_runner(memory).execute(waiting.run_id)
        assert (run.status, run.retry_of, act.begun) == ("success", old.run_id, ["one/b"])


class TestNarrowing:
    async def test_only_failed_leaves_alone_who_was_never_reached(
        self, runner: tenure.Runner, act: Puppet
    ) -> None:
        old = await failing(runner, act, THREE, "two/b")
        second = await runner.retry(old.run_id, tenure.RetryOptions(only_failed=True))
        assert (second.status, act.begun) == (RunStatus.SUCCESS, ["two/b", "three/b"])
        act.begun.clear()
        third = await runner.retry(second.run_id)
        assert (third.status, act.begun) == (RunStatus.SUCCESS, ["three/a", "three/c"])

    async def test_from_a_step_on_everything_runs_again_and_nothing_before(
        self, runner: tenure.Runner, act: Puppet
    ) -> None:
        old = await failing(runner, act, THREE, "two/b")
        run = await runner.retry(old.run_id, tenure.RetryOptions(from_step="two"))
        assert run.status is RunStatus.SUCCESS
        assert act.begun == [f"{s}/{h}" for s in ("two", "three") for h in HOSTS]
        skipping = tenure.RetryOptions(from_step="2", limit=["a"])
        act.begun.clear()
        await runner.retry(old.run_id, skipping)
        assert act.begun == ["three/a"], "what is left of two is left alone"

    async def test_what_is_not_there_is_named(self, runner: tenure.Runner, act: Puppet) -> None:
        old = await failing(runner, act, THREE, "two/b")
        with pytest.raises(tenure.InvalidWorkflow, match="no step named 'tow'; did you mean 'two'"):
            await runner.retry(old.run_id, tenure.RetryOptions(from_step="tow"))
        with pytest.raises(tenure.InvalidWorkflow, match="'9'; there is one, two, three"):
            await runner.retry(old.run_id, tenure.RetryOptions(again=["9"]))
        with pytest.raises(tenure.InvalidWorkflow, match="no host or group named 'x'"):
            await runner.retry(old.run_id, tenure.RetryOptions(limit=["x"]))
        assert act.begun == []

    async def test_nothing_left_is_said_before_anything_is_stored(
        self, memory: InMemoryStore, runner: tenure.Runner, act: Puppet
    ) -> None:
        fine = await runner.run(THREE)
        with pytest.raises(NotRunnable, match="every host came through every step"):
            await runner.retry(fine.run_id)
        old = await failing(runner, act, THREE, "three/b")
        with pytest.raises(NotRunnable, match="others are left"):
            await runner.retry(old.run_id, tenure.RetryOptions(limit=["a"]))
        limited = await runner.run(THREE, tenure.RunOptions(limit=["a"]))
        with pytest.raises(NotRunnable, match="had no part for b, c: it was limited to a"):
            await runner.retry(limited.run_id, tenure.RetryOptions(limit=["b", "c"]))
        assert len((await memory.list_runs()).items) == 3

    async def test_a_run_that_goes_on_is_not_retried(self, runner: tenure.Runner) -> None:
        queued = await runner.submit(THREE)
        with pytest.raises(NotRunnable, match="is queued: it can be retried once it has ended"):
            await runner.retry(queued.run_id)


SECRET = "s3cr3t-value"
GIVEN = {"token": SECRET}


class TestWhatIsKeptNowhere:
    """An export that held a secret is not in the record: no retry goes on as if it were there."""

    @pytest.fixture(autouse=True)
    def exports(self, act: Puppet) -> None:
        for host in HOSTS:
            act.results[f"one/{host}"] = TaskResult(vars={"AUTH": f"Bearer {SECRET}", "N": host})

    async def failed(
        self, runner: tenure.Runner, act: Puppet, *labels: str, **rest: Any
    ) -> RunSnapshot:
        played = workflow(
            step("one", **rest), step("two"), step("three"), hosts=HOSTS, secrets=["token"]
        )
        return await failing(runner, act, played, *labels, secrets=GIVEN)

    async def test_the_step_that_exported_it_is_named_and_nothing_is_stored(
        self, memory: InMemoryStore, runner: tenure.Runner, act: Puppet
    ) -> None:
        old = await self.failed(runner, act, "two/b")
        with pytest.raises(NotRunnable) as refused:
            await runner.retry(old.run_id, tenure.RetryOptions(secrets=GIVEN))
        assert "step 'one' exported AUTH with a secret in it on a, b, c" in str(refused.value)
        assert "--again one" in str(refused.value)
        assert "--from-step one" in str(refused.value)
        assert act.begun == []
        assert len((await memory.list_runs()).items) == 1

    async def test_run_again_that_step_makes_up_for_it_and_the_rest_goes_on(
        self, memory: InMemoryStore, runner: tenure.Runner, act: Puppet
    ) -> None:
        old = await self.failed(runner, act, "two/b")
        again = tenure.RetryOptions(secrets=GIVEN, again=["one"])
        run = await runner.retry(old.run_id, again)
        assert run.status is RunStatus.SUCCESS
        assert act.begun == ["one/a", "one/b", "one/c", "two/b", "three/a", "three/b", "three/c"]
        assert act.tasks["two/b"].vars["AUTH"] == f"Bearer {SECRET}"
        text = await memory.get_definition(run.run_id)
        assert SECRET not in (text or "")


FLOW = workflow(step("one"), step("two"), hosts=("a", "b"))


async def failed_run(
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
    old = await failed_run(runner, act)
    going = await act.holding(runner.retry(old.run_id, called("first-retry")), "one/b")
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


async def test_one_that_waits_for_approval_counts(runner: tenure.Runner, act: Puppet) -> None:
    asks = workflow(step("one"), hosts=("a", "b"), plan=PlanSettings(mode="manual-approve"))
    old = await failed_run(runner, act, asks, approved_by="ada")
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
    old = await failed_run(new_runner(any_store), act)
    if not isinstance(any_store, Definitions):
        with pytest.raises(NotRunnable, match="keeps no definition"):
            await new_runner(any_store).retry(old.run_id)
        return
    went_on = await _two_at_once(any_store, new_runner, old)
    assert went_on.status is RunStatus.SUCCESS
    assert sorted(act.begun) == ["one/b", "two/a", "two/b"]


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
    old = await failed_run(new_runner(sqlite), act)
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
