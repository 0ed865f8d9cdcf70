"""The way of a run's updates into a store that fails, forgets to answer, or says no."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import tenure
from tenure.model.errors import LeaseLost, StoreUnavailable
from tenure.model.leases import Purpose
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, NewRun, StepChange, Update
from tenure.ports.execution import TaskResult
from tenure.ports.store import EventLog
from tenure.runtime.group_commit import GroupCommit
from tenure.runtime.leases import HeldLease
from tenure.runtime.recorders import RecorderQueue
from tenure.runtime.writer import RunTracker
from tenure.stores.memory import InMemoryStore
from tenure.system import new_update_id
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create
from tenure.testing.factories import HOSTS, lease_request
from tenure.testing.faults import Fault, FaultyStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import Between, Onlooker, Outage, Puppet, shell, step, workflow

THREE = workflow(step("one"), step("two"), step("three"))
RUN_ID = "a-run-to-watch"
NAMED = tenure.RunOptions(run_id=RUN_ID)


def updates(store: Between) -> list[Update | NewRun]:
    sent: list[Update | NewRun] = []
    for name, args in store.calls:
        if name == "update_runs":
            sent.extend(args[0])
        elif name in ("create_run", "update_run"):
            sent.append(args[0])
    return sent


async def types(store: Any, run_id: str = RUN_ID) -> list[str]:
    return [event.type for event in await store.read_events(run_id)]


class FirstTryFails:
    """Each write fails the first time it is sent, in the same way."""

    def __init__(self, store: Between, fault: Fault) -> None:
        self.fault = fault
        self.tried: set[str] = set()
        for method in ("create_run", "update_run", "update_runs"):
            store.rules[method] = self._rule

    async def _rule(self, real: Any, given: Any) -> Any:
        writes = given if isinstance(given, list) else [given]
        again = {write.update_id for write in writes} <= self.tried
        self.tried |= {write.update_id for write in writes}
        if again:
            answer = await real(given)
            if self.fault is Fault.LATE:
                await real(given)  # the first one, overtaken by its repetition
            return answer
        if self.fault is Fault.LOST_ANSWER:
            await real(given)
        raise StoreUnavailable("injected")


class TestNoAnswer:
    @pytest.mark.slow
    async def test_the_same_update_is_sent_again_until_it_is_answered(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(any_store)
        outage = Outage(store, "create_run", "update_run", "update_runs")
        act.hold("one/local")
        running = asyncio.create_task(new_runner(store).run(THREE, NAMED))
        await act.begins("one/local")
        outage.on = True
        act.let_go("one/local")
        await outage.refuses(3)
        outage.on = False
        assert (await running).status is RunStatus.SUCCESS
        again = [each.update_id for each in updates(store)][1 : 1 + 4]
        assert len(set(again)) == 1
        assert (await store.real.get_run(RUN_ID)).version == 4

    @pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.BEFORE, Fault.LATE])
    async def test_whatever_becomes_of_the_first_try_it_counts_once(
        self, any_store: Any, new_runner: NewRunner, fault: Fault
    ) -> None:
        store = Between(any_store)
        failing = FirstTryFails(store, fault)
        run = await new_runner(store).run(THREE, NAMED)
        assert (run.status, run.version) == (RunStatus.SUCCESS, 4)
        assert len(failing.tried) == 4
        if isinstance(any_store, EventLog):
            said = await types(any_store)
            assert [each for each in said if each.startswith("run.")] == [
                "run.running",
                "run.success",
            ]
            assert [said.count(each) for each in ("step.running", "host.success")] == [3, 3]

    @pytest.mark.slow
    async def test_one_call_in_ten_fails_and_all_runs_end_right(
        self, any_store: Any, new_runner: NewRunner
    ) -> None:
        faulty = FaultyStore(any_store, seed=11, rate=0.10)
        runner = new_runner(faulty)
        runs = await asyncio.gather(*(runner.run(THREE) for _ in range(20)))
        assert {run.status for run in runs} == {RunStatus.SUCCESS}
        assert {run.version for run in runs} == {4}
        assert faulty.injected

    async def test_what_runs_goes_on_and_nothing_new_starts(
        self, new_runner: NewRunner, act: Puppet, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = Between(InMemoryStore())
        outage = Outage(store)
        act.hold("one/a", "one/b")
        played = workflow(step("one"), step("two"), step("free", needs=["one"]), hosts=["a", "b"])
        running = asyncio.create_task(new_runner(store).run(played, NAMED))
        await act.begins("one/a", "one/b")
        outage.on = True
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
            act.let_go("one/a")
            await outage.refuses()
            act.let_go("one/b")
            await outage.refuses(12)
        assert act.ended == ["one/a", "one/b"], "a task that runs is not disturbed"
        assert act.begun == ["one/a", "one/b"], "nothing starts that is not in the record"
        (said,) = [each.message for each in caplog.records if RUN_ID in each.message]
        assert "the store does not answer" in said
        outage.on = False
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
            run = await running
        assert run.status is RunStatus.SUCCESS
        assert set(act.begun) > {"two/a", "free/b"}
        assert "the store answers again after" in caplog.messages[-1], "who was warned hears of it"

    @pytest.mark.slow
    async def test_a_store_that_fails_for_five_seconds(
        self, sqlite: Any, new_runner: NewRunner, caplog: pytest.LogCaptureFixture
    ) -> None:
        """With real commands: one runs through it all, the next waits for the store."""
        store, onlooker = Between(sqlite), Onlooker()
        outage = Outage(store)
        played = workflow(shell("one", "sleep 1"), shell("two", "echo two"))
        running = asyncio.create_task(new_runner(store, recorders=[onlooker]).run(played, NAMED))
        await onlooker.hears("host.running")
        outage.on = True
        await asyncio.sleep(5)
        outage.on = False
        run = await running
        assert run.status is RunStatus.SUCCESS
        assert [each.hosts["local"].stdout for each in run.steps] == [None, "two\n"]
        assert run.version == 3
        assert [each for each in caplog.messages if RUN_ID in each and "does not answer" in each]

    async def test_a_run_that_cannot_be_created_is_given_up(
        self, new_runner: NewRunner, act: Puppet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tenure.model.retry import RetryPolicy

        monkeypatch.setattr("tenure.aio.PATIENCE", RetryPolicy(attempts=3, delay=0.001))
        store = Between(InMemoryStore())
        runner = new_runner(store)
        await runner.open()
        outage = Outage(store)
        outage.on = True
        with pytest.raises(StoreUnavailable, match="network is down"):
            await runner.run(THREE)
        assert (act.begun, store.count("update_runs")) == ([], 3)

    async def test_a_driver_that_leaks_its_errors_is_a_store_that_does_not_answer(
        self, any_store: Any, new_runner: NewRunner, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = Between(any_store)
        leaks = [ConnectionResetError("peer"), KeyError("cursor")]

        async def leak(real: Any, *args: Any) -> Any:
            if leaks:
                raise leaks.pop()
            return await real(*args)

        store.rules |= dict.fromkeys(("create_run", "update_run", "update_runs"), leak)
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
            run = await new_runner(store).run(THREE, NAMED)
        assert (run.status, run.version) == (RunStatus.SUCCESS, 4)
        assert [each for each in caplog.messages if "cursor" in each]


class TestOthersWriteToo:
    async def test_an_annotation_in_between_changes_nothing_of_the_run(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/local", "two/local")
        runner = new_runner(any_store)
        running = asyncio.create_task(runner.run(THREE, NAMED))
        for label in ("one/local", "two/local"):
            await act.begins(label)
            await runner.annotate(RUN_ID, {"seen": label})
            act.let_go(label)
        run = await running
        assert (run.status, run.version) == (RunStatus.SUCCESS, 6)
        assert [note.data["seen"] for note in run.annotations] == ["one/local", "two/local"]

    async def test_an_annotation_between_a_lost_answer_and_its_repetition(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(any_store)
        runner = new_runner(store)
        disturbed = False

        async def lose_and_disturb(real: Any, *args: Any) -> Any:
            nonlocal disturbed
            answer = await real(*args)
            if not disturbed and act.ended:
                disturbed = True
                await runner.annotate(RUN_ID, {"by": "the way"})
                raise StoreUnavailable("the answer is lost")
            return answer

        store.rules |= {"update_runs": lose_and_disturb}
        if not hasattr(any_store, "update_runs"):
            store.rules |= {"update_run": lose_and_disturb}
        run = await runner.run(THREE, NAMED)
        assert disturbed
        assert (run.status, run.version) == (RunStatus.SUCCESS, 5)
        assert len(run.annotations) == 1

    async def test_a_cancel_request_comes_back_with_the_next_answer(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        """Without anybody looking for it: the owner's own write tells."""
        runner = new_runner(any_store, timing=tenure.Timing(control_interval=1000))

        async def cancel(task: tenure.Task) -> TaskResult:
            await runner._parts._sessions.of()
            session = await runner._parts.session()
            await session.operators.cancel(task.run_id, reason="enough")
            return TaskResult()

        act.results["one/local"] = cancel
        run = await runner.run(THREE)
        assert run.status is RunStatus.CANCELED
        assert run.cancel_reason == "enough"
        assert act.begun == ["one/local"]
        assert [each.status for each in run.steps] == ["success", "canceled", "canceled"]


class TestRefused:
    async def test_a_result_that_can_never_be_stored_fails_its_run_and_no_other(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["bad/local"] = TaskResult(vars={"handle": object()})
        act.hold("bad/local", "good/local")
        runner = new_runner(any_store)
        bad = asyncio.create_task(runner.run(workflow(step("bad"), step("next")), NAMED))
        good = [asyncio.create_task(runner.run(workflow(step("good")))) for _ in range(3)]
        await act.begins("bad/local", "good/local")
        act.let_go("bad/local", "good/local")
        run = await bad
        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert (run.error.kind, run.error.host) == ("rejected", "local")
        assert "cannot be stored" in run.error.message
        host = run.steps[0].hosts["local"]
        assert (host.status, run.steps[0].status) == ("failed", "failed")
        assert "cannot be stored" in (host.message or "")
        assert run.steps[1].status == "skipped"
        assert {(await each).status for each in good} == {RunStatus.SUCCESS}

    async def test_other_hosts_of_the_run_are_canceled_and_not_unknown(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/a"] = TaskResult(vars={"handle": object()})
        act.hold("one/b", "one/a")
        running = asyncio.create_task(
            new_runner(any_store).run(workflow(step("one"), hosts=["a", "b"]))
        )
        await act.begins("one/a", "one/b")
        act.let_go("one/a")
        run = await running
        assert {name: host.status for name, host in run.steps[0].hosts.items()} == {
            "a": "failed",
            "b": "canceled",
        }
        assert act.cancelled == ["one/b"]

    async def test_an_item_of_a_loop_too(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/local[0]"] = TaskResult(vars={"handle": object()})
        run = await new_runner(any_store).run(workflow(step("one", loop=[1, 2])))
        assert (run.status, run.error and run.error.kind) == (RunStatus.FAILED, "rejected")
        host = run.steps[0].hosts["local"]
        assert (host.status, [item.status for item in host.items]) == ("failed", ["failed"])

    async def test_values_that_cannot_be_stored_refuse_the_run_before_it_begins(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        options = tenure.RunOptions(vars={"x": []})
        options.vars["x"].append(object())  # what was right when it was given
        with pytest.raises(tenure.StoreRejected, match="cannot be stored"):
            await new_runner(any_store).run(THREE, options)
        assert act.begun == []
        assert not (await any_store.list_runs()).items


class TestLeaseLost:
    async def test_the_owner_stops_its_tasks_and_writes_no_more(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        clock, onlooker = ManualClock(), Onlooker()
        store = Between(InMemoryStore(clock))
        act.hold("one/a", "one/b")
        running = asyncio.create_task(
            new_runner(store, recorders=[onlooker]).run(
                workflow(step("one"), step("two"), hosts=["a", "b"]), NAMED
            )
        )
        await act.begins("one/a", "one/b")
        clock.advance(61)
        await store.real.claim_run(RUN_ID, lease_request("another"), Purpose.RECONCILE)
        version = (await store.real.get_run(RUN_ID)).version
        tried = store.count("update_runs")
        act.let_go("one/a")
        with pytest.raises(LeaseLost, match="held by owner another"):
            await running
        assert act.cancelled == ["one/b"]
        assert store.count("update_runs") == tried + 1, "told once, it does not try again"
        run = await store.real.get_run(RUN_ID)
        assert (run.version, run.owner_id, run.status) == (version, "another", RunStatus.RUNNING)
        assert "host.success" not in onlooker.types

    async def test_an_expired_lease_nobody_claimed_loses_no_work(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        clock = ManualClock()
        store = InMemoryStore(clock)
        act.hold("one/local")
        running = asyncio.create_task(new_runner(store).run(THREE))
        await act.begins("one/local")
        clock.advance(3600)
        act.let_go("one/local")
        assert (await running).status is RunStatus.SUCCESS


async def test_a_run_is_given_back_also_if_nothing_else_may_be_said(memory: InMemoryStore) -> None:
    """All there was to write were starts, and its owner no longer trusts its lease."""
    run = await create(memory, run_id=RUN_ID)
    claimed = await memory.claim_run(RUN_ID, lease_request("me"))
    audience = RecorderQueue((), run, memory)
    tracker = RunTracker(claimed.snapshot, GroupCommit(memory).write, new_update_id, audience)
    tracker.own(claimed)
    tracker.holding = HeldLease(RUN_ID, claimed.lease, 0.0, lambda: None, lambda _: None)
    tracker.holding.trusted_until = 0.0
    start = StepChange(
        status=StepStatus.RUNNING, hosts={HOSTS[0]: HostChange(status=HostStatus.RUNNING)}
    )
    await tracker.record(Changes(steps={0: start}), release=True)
    left = await memory.get_run(RUN_ID)
    assert (left.owner_id, left.steps[0].status) == (None, StepStatus.PENDING)
