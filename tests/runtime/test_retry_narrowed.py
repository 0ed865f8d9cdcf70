"""Retries of less than what is left: some hosts, some steps, only what failed."""

from __future__ import annotations

import pytest

import tenure
from tenure.model.errors import NotRunnable
from tenure.model.status import RunStatus
from tenure.stores.memory import InMemoryStore
from tests.runtime.conftest import NewRunner
from tests.runtime.failed_runs import HOSTS, THREE, failing
from tests.runtime.puppets import BROKEN, Puppet, step, workflow


class TestNarrowing:
    async def test_only_failed_leaves_alone_who_was_never_reached(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        second = await runner.retry(old.run_id, tenure.RetryOptions(only_failed=True))
        assert (second.status, act.begun) == (RunStatus.SUCCESS, ["two/b", "three/b"])
        act.begun.clear()
        third = await runner.retry(second.run_id)
        assert (third.status, act.begun) == (RunStatus.SUCCESS, ["three/a", "three/c"])

    async def test_who_failed_earlier_in_the_chain_has_failed_too(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        reload = tenure.Handler(name="reload", action="act")
        played = workflow(
            step("one", notify=["reload"]), step("two"), hosts=HOSTS, handlers=[reload]
        )
        runner = new_runner(memory)
        old = await failing(runner, act, played, "one/a", "one/b")
        second = await runner.retry(old.run_id, tenure.RetryOptions(limit=["a"]))
        assert second.status is RunStatus.SUCCESS
        act.results["reload/b"] = BROKEN
        act.begun.clear()
        only = tenure.RetryOptions(only_failed=True)
        third = await runner.retry(second.run_id, only)
        assert (third.status, act.begun) == (RunStatus.FAILED, ["one/b", "reload/b"])
        act.results.clear()
        fourth = await runner.retry(third.run_id, tenure.RetryOptions(limit=["c"]))
        act.begun.clear()
        fifth = await runner.retry(fourth.run_id, only)
        assert (fifth.status, act.begun) == (RunStatus.SUCCESS, ["reload/b", "two/b"])
        with pytest.raises(NotRunnable, match="leaves nothing"):
            await runner.retry(fifth.run_id, only)

    async def test_from_a_step_on_everything_runs_again_and_nothing_before(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        run = await runner.retry(old.run_id, tenure.RetryOptions(from_step="two"))
        assert run.status is RunStatus.SUCCESS
        assert act.begun == [f"{s}/{h}" for s in ("two", "three") for h in HOSTS]
        skipping = tenure.RetryOptions(from_step="2", limit=["a"])
        act.begun.clear()
        await runner.retry(old.run_id, skipping)
        assert act.begun == ["three/a"], "what is left of two is left alone"

    async def test_what_runs_again_on_one_host_stays_done_on_the_others(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        again = tenure.RetryOptions(from_step="one", limit=["a"])
        second = await runner.retry(old.run_id, again)
        assert act.begun == ["one/a", "two/a", "three/a"]
        act.begun.clear()
        await runner.retry(second.run_id)
        assert act.begun == ["two/b", "three/b", "three/c"]

    async def test_from_a_step_means_those_that_wait_for_it(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        played = workflow(
            step("last", needs=["middle"]), step("apart", needs=[]), step("middle", needs=[])
        )
        runner = new_runner(memory)
        old = await runner.run(played)
        act.begun.clear()
        await runner.retry(old.run_id, tenure.RetryOptions(from_step="middle"))
        assert act.begun == ["middle/local", "last/local"]

    async def test_what_is_not_there_is_named(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
        old = await failing(runner, act, THREE, "two/b")
        with pytest.raises(tenure.InvalidWorkflow, match="no step named 'tow'; did you mean 'two'"):
            await runner.retry(old.run_id, tenure.RetryOptions(from_step="tow"))
        with pytest.raises(tenure.InvalidWorkflow, match="'9'; there is one, two, three"):
            await runner.retry(old.run_id, tenure.RetryOptions(again=["9"]))
        with pytest.raises(tenure.InvalidWorkflow, match="no host or group named 'x'"):
            await runner.retry(old.run_id, tenure.RetryOptions(limit=["x"]))
        assert act.begun == []

    async def test_nothing_left_is_said_before_anything_is_stored(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(memory)
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

    async def test_a_run_that_goes_on_is_not_retried(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        runner = new_runner(memory)
        queued = await runner.submit(THREE)
        with pytest.raises(NotRunnable, match="is queued: it can be retried once it has ended"):
            await runner.retry(queued.run_id)
