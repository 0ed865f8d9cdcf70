"""A run's updates on their way: group commit; a store that fails, forgets to answer, says no."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

import tenure
from tenure.model.errors import LeaseLost, RunExists, RunNotFound, StoreRejected, StoreUnavailable
from tenure.model.leases import Purpose
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import NewRun, Receipt, Update, Write, run_id_of
from tenure.ports.execution import TaskResult
from tenure.ports.store import EventLog
from tenure.runtime.group_commit import LARGEST_BATCH, GroupCommit
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import annotate, lease_request, new_run
from tenure.testing.faults import Fault, FaultyStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, Onlooker, Outage, Puppet, step, workflow


class Slow(InMemoryStore):
    """Each batch waits to be let go; ``batches`` are the run ids of each."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.open_gate = asyncio.Event()
        self.under_way = 0
        self.most_under_way = 0

    async def update_runs(self, writes: Sequence[Write]) -> list[Any]:
        self.batches.append([run_id_of(write) for write in writes])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.open_gate.wait()
        self.under_way -= 1
        return await super().update_runs(writes)


@pytest.fixture
def slow() -> Slow:
    return Slow()


async def soon() -> None:
    """Everything that can happen without waiting has happened."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_writes_of_one_turn_share_a_commit(slow: Slow) -> None:
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    writes = [new_run() for _ in range(5)]
    receipts = await asyncio.gather(*(combiner.write(write) for write in writes))
    assert slow.batches == [[write.snapshot.run_id for write in writes]]
    assert [each.run_id for each in receipts] == slow.batches[0]


async def test_what_comes_while_a_commit_is_under_way_gathers_for_the_next(slow: Slow) -> None:
    combiner = GroupCommit(slow)
    first = asyncio.ensure_future(combiner.write(new_run()))
    await soon()
    rest = []
    for _ in range(4):
        rest.append(asyncio.ensure_future(combiner.write(new_run())))
        await soon()
    slow.open_gate.set()
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in slow.batches] == [1, 4]


async def test_nobody_is_answered_before_the_commit(slow: Slow) -> None:
    answer = asyncio.ensure_future(GroupCommit(slow).write(new_run()))
    await soon()
    assert slow.batches
    assert not answer.done()
    slow.open_gate.set()
    assert (await answer).version == 1


@pytest.mark.parametrize("turns", range(8))
async def test_a_write_in_any_turn_after_the_last_is_answered(slow: Slow, turns: int) -> None:
    """The sender task ends, is noticed and discarded over several turns of the loop; a write may
    come in any of them."""
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    first = asyncio.ensure_future(combiner.write(new_run()))
    while not slow.batches:
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await combiner.write(new_run())
        await first


async def test_a_batch_is_bounded(slow: Slow) -> None:
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    await asyncio.gather(*(combiner.write(new_run()) for _ in range(LARGEST_BATCH + 1)))
    assert [len(batch) for batch in slow.batches] == [LARGEST_BATCH, 1]


async def test_one_refusal_is_its_writers_alone(slow: Slow) -> None:
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    known = new_run()
    await combiner.write(known)
    twin = new_run(run_id=known.snapshot.run_id)
    missing = annotate(RunSnapshot(run_id="no-such-run", workflow_name="x"), note=1)
    unstorable = new_run(vars={"x": object()})
    answers = await asyncio.gather(
        *(combiner.write(write) for write in (twin, missing, unstorable, new_run())),
        return_exceptions=True,
    )
    assert list(map(type, answers)) == [RunExists, RunNotFound, StoreRejected, Receipt]
    assert len(slow.batches) == 2


async def test_when_a_batch_fails_everybody_gets_an_error_of_their_own(slow: Slow) -> None:
    async def fail(writes: Sequence[Write]) -> list[Any]:
        raise StoreUnavailable("down")

    slow.update_runs = fail  # type: ignore[method-assign]
    combiner = GroupCommit(slow)
    answers = await asyncio.gather(
        *(combiner.write(new_run()) for _ in range(3)), return_exceptions=True
    )
    assert [str(each) for each in answers] == ["down"] * 3
    assert all(isinstance(each, StoreUnavailable) for each in answers)
    assert len({id(each) for each in answers}) == 3, "a shared one gathers everybody's traceback"


class Parallel(Slow):
    batches_at_once = 2


async def test_batches_that_can_be_under_way_together_share_what_waits() -> None:
    store = Parallel()
    combiner = GroupCommit(store)
    writes = [asyncio.ensure_future(combiner.write(new_run())) for _ in range(6)]
    await soon()
    more = [asyncio.ensure_future(combiner.write(new_run())) for _ in range(4)]
    await soon()
    store.open_gate.set()
    await asyncio.gather(*writes, *more)
    assert store.most_under_way == 2
    assert [len(batch) for batch in store.batches] == [3, 3, 4]


async def test_close_waits_for_what_is_under_way(slow: Slow) -> None:
    combiner = GroupCommit(slow)
    answer = asyncio.ensure_future(combiner.write(new_run()))
    await soon()
    closing = asyncio.ensure_future(combiner.close())
    await soon()
    assert not closing.done()
    slow.open_gate.set()
    await closing
    assert (await answer).version == 1


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
        running = await act.holding(new_runner(store).run(THREE, NAMED), "one/local")
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
                "run.queued",
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
        played = workflow(step("one"), step("two"), step("free", needs=["one"]), hosts=["a", "b"])
        running = await act.holding(new_runner(store).run(played, NAMED), "one/a", "one/b")
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

    async def test_a_run_that_cannot_be_created_is_given_up(
        self, new_runner: NewRunner, act: Puppet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tenure.model.retry_policy import RetryPolicy

        monkeypatch.setattr("tenure.runtime.writer.PATIENCE", RetryPolicy(attempts=3, delay=0.001))
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
        for method in ("create_run", "update_run", "update_runs"):
            store.fails(method, KeyError("cursor"), ConnectionResetError("peer"))
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
            await new_runner(any_store).cancel(task.run_id, reason="enough")
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
        running = await act.holding(new_runner(store).run(THREE), "one/local")
        clock.advance(3600)
        act.let_go("one/local")
        assert (await running).status is RunStatus.SUCCESS
