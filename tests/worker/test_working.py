"""What a worker takes, how it ends what it took, and how it goes."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tenure
from tenure.model.errors import NotSupported
from tenure.model.leases import Purpose
from tenure.model.query import RunFilter
from tenure.model.status import Recovery, RunStatus
from tests.runtime.puppets import Between, Inbox, Outage, Puppet, step, workflow
from tests.worker.conftest import EACH_STORE, SHORT, Workers, eventually

ONE = workflow(step("one"))
THREE = workflow(step("one"), step("two"), step("three"))


@EACH_STORE
async def test_what_is_queued_is_executed(workers: Workers, act: Puppet) -> None:
    before = await workers.submit(THREE)
    workers.start()
    after = await workers.submit(THREE)
    for run_id in (before, after):
        run = await workers.ended(run_id)
        assert run.status is RunStatus.SUCCESS
        assert run.owner_id is None
    assert sorted(act.begun) == sorted(["one/local", "two/local", "three/local"] * 2)


@EACH_STORE
async def test_a_submitted_run_costs_as_many_updates_as_it_has_steps_and_two(
    workers: Workers,
) -> None:
    """Created, claimed, begun, and each step's end with what follows."""
    workers.start()
    run = await workers.ended(await workers.submit(THREE))
    assert run.version == 1 + 1 + len(THREE.steps) + 1


async def test_it_takes_no_more_than_it_has_room_for(workers: Workers, act: Puppet) -> None:
    ids = [await workers.submit(ONE) for _ in range(5)]
    act.hold("one/local")
    workers.start(concurrency=2)
    await eventually(lambda: len(act.begun) == 2)
    running = [run_id for run_id in ids if (await workers.run(run_id)).owner_id is not None]
    assert running == ids[:2]
    act.let_go("one/local")
    for run_id in ids:
        assert (await workers.ended(run_id)).status is RunStatus.SUCCESS


@EACH_STORE
async def test_it_leaves_other_queues_alone(workers: Workers) -> None:
    other = await workers.submit(ONE, queue="reports")
    workers.start()
    await workers.ended(await workers.submit(ONE))
    assert (await workers.run(other)).status is RunStatus.QUEUED
    workers.start(queues=["reports"])
    await workers.ended(other)


async def test_priority_comes_first(workers: Workers, act: Puppet) -> None:
    low = await workers.submit(workflow(step("low")), priority=-5)
    high = await workers.submit(workflow(step("high")), priority=5)
    workers.start(concurrency=1)
    await workers.ended(low)
    await workers.ended(high)
    assert act.begun == ["high/local", "low/local"]


@EACH_STORE
async def test_a_run_waits_for_its_time(workers: Workers) -> None:
    run_id = await workers.submit(ONE, run_after=datetime.now(UTC) + timedelta(seconds=0.3))
    workers.start()
    run = await workers.ended(run_id)
    assert run.started_at is not None
    assert run.run_after is not None
    assert run.started_at >= run.run_after


async def test_a_workflow_that_fails_is_no_trouble_of_the_worker(
    workers: Workers, act: Puppet
) -> None:
    act.results["one/local"] = tenure.TaskResult(status=tenure.HostStatus.FAILED, message="no")
    workers.start()
    assert (await workers.ended(await workers.submit(ONE))).status is RunStatus.FAILED
    act.results.clear()
    assert (await workers.ended(await workers.submit(ONE))).status is RunStatus.SUCCESS


async def test_what_this_worker_cannot_execute_fails_and_says_why(workers: Workers) -> None:
    run_id = await workers.submit(ONE)
    workers.start(actions={})
    run = await workers.ended(run_id)
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.kind == "definition"
    assert "'act'" in run.error.message


async def test_a_definition_that_cannot_be_read_fails_its_run_and_no_other(
    workers: Workers,
) -> None:
    door = Between(workers.store)
    damaged = await workers.submit(ONE)

    async def read(real: Any, run_id: str) -> Any:
        return "no definition" if run_id == damaged else await real(run_id)

    door.rules["get_definition"] = read
    workers.start(store=door)
    run = await workers.ended(damaged)
    assert run.error is not None
    assert (run.status, run.error.kind) == (RunStatus.FAILED, "definition")
    assert (await workers.ended(await workers.submit(THREE))).status is RunStatus.SUCCESS


class TestSecrets:
    WANTING = workflow(step("one", args={"token": "${{ token }}"}), secrets=["token"])

    async def test_are_the_workers(self, workers: Workers, act: Puppet) -> None:
        workers.start(secrets={"token": "opensesame", "other": "unused"})
        run = await workers.ended(await workers.submit(self.WANTING))
        assert run.status is RunStatus.SUCCESS
        assert act.tasks["one/local"].args == {"token": "opensesame"}
        assert "other" not in act.tasks["one/local"].vars
        assert b"opensesame" not in repr(run).encode()

    async def test_one_that_is_missing_is_named_and_who_needs_it(self, workers: Workers) -> None:
        workers.start()
        run = await workers.ended(await workers.submit(self.WANTING))
        assert run.error is not None
        assert "the secret 'token' is not given to the worker; " in run.error.message
        assert "tenure worker --secret token, or with TENURE_SECRET_TOKEN" in run.error.message


async def test_a_cancel_reaches_the_worker(workers: Workers, act: Puppet) -> None:
    act.hold("one/local")
    workers.start()
    run_id = await workers.submit(THREE)
    await act.begins("one/local")
    await workers.runner.cancel(run_id, reason="enough")
    run = await workers.ended(run_id)
    assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
    assert act.cancelled == ["one/local"]


async def test_its_notifier_hears_of_every_status(workers: Workers) -> None:
    inbox = Inbox()
    worker = workers.start(notifier=inbox)
    run_id = await workers.submit(ONE)
    await workers.ended(run_id)
    worker.drain()
    await workers.returns(worker)
    statuses = [each.status for each in inbox.payloads if each.type.startswith("run.")]
    assert statuses == ["running", "success"]


class TestDraining:
    async def test_what_runs_comes_to_its_end_and_nothing_else_begins(
        self, workers: Workers, act: Puppet
    ) -> None:
        act.hold("one/local")
        worker = workers.start()
        first = await workers.submit(THREE)
        await act.begins("one/local")
        worker.drain()
        later = await workers.submit(THREE)
        act.let_go("one/local")
        await workers.returns(worker)
        assert (await workers.run(first)).status is RunStatus.SUCCESS
        assert (await workers.run(later)).status is RunStatus.QUEUED

    @EACH_STORE
    async def test_what_does_not_end_in_time_is_given_back_as_far_as_it_has_come(
        self, workers: Workers, act: Puppet
    ) -> None:
        act.hold("two/local")
        worker = workers.start(drain_timeout=0.05)
        run_id = await workers.submit(THREE)
        await act.begins("two/local")
        worker.drain()
        await workers.returns(worker)
        run = await workers.run(run_id)
        assert (run.status, run.owner_id, run.takeovers) == (RunStatus.RUNNING, None, 0)
        assert [each.hosts["local"].status for each in run.steps] == [
            "success",
            "unknown",
            "pending",
        ]
        assert act.cancelled == ["two/local"]
        last = (await workers.events(run_id))[-1]
        assert (last.type, last.version) == ("lease.released", run.version)
        workers.start()
        run = await workers.ended(run_id)
        assert (run.status, run.takeovers) == (RunStatus.SUCCESS, 0)
        assert act.begun == ["one/local", "two/local", "two/local#2", "three/local"]
        assert run.steps[1].hosts["local"].message is None

    async def test_what_a_claim_under_way_still_brings_is_given_back(
        self, workers: Workers, act: Puppet
    ) -> None:
        door = Between(workers.store)
        asked, answered = asyncio.Event(), asyncio.Event()

        async def late(real: Any, request: Any) -> Any:
            claimed = await real(request)
            if request.purpose is Purpose.EXECUTE and claimed:
                asked.set()
                await answered.wait()
            return claimed

        door.rules["claim_runs"] = late
        worker = workers.start(store=door)
        run_id = await workers.submit(ONE)
        await asked.wait()
        worker.drain()
        answered.set()
        await workers.returns(worker)
        run = await workers.run(run_id)
        assert (run.status, run.owner_id) == (RunStatus.QUEUED, None)
        assert act.begun == []

    async def test_before_anything_was_claimed_it_is_over_at_once(self, workers: Workers) -> None:
        worker = workers.start()
        worker.drain()
        await workers.returns(worker)
        run_id = await workers.submit(ONE)
        assert (await workers.run(run_id)).status is RunStatus.QUEUED

    async def test_cancelling_it_hands_over_at_once(self, workers: Workers, act: Puppet) -> None:
        act.hold("one/local")
        worker = workers.start()
        run_id = await workers.submit(ONE)
        await act.begins("one/local")
        worker.drain(at_once=True)
        await workers.returns(worker)
        run = await workers.run(run_id)
        assert (run.status, run.owner_id) == (RunStatus.RUNNING, None)

    async def test_what_does_not_resume_is_interrupted_and_told_of_once(
        self, workers: Workers, act: Puppet
    ) -> None:
        """Nobody asked for it to be canceled, and nobody will go on with it."""
        inbox = Inbox()
        act.hold("two/local")
        worker = workers.start(drain_timeout=0.05, notifier=inbox)
        run_id = await workers.submit(THREE, recovery=Recovery.INTERRUPT)
        await act.begins("two/local")
        worker.drain()
        await workers.returns(worker)
        run = await workers.run(run_id)
        assert (run.status, run.owner_id) == (RunStatus.INTERRUPTED, None)
        assert run.interrupted_reason == "its worker was told to stop, and it does not resume"
        assert run.error is not None
        assert (run.error.kind, run.cancel_requested_at) == ("interrupted", None)
        assert [each.status for each in run.steps] == ["success", "interrupted", "interrupted"]
        assert act.cancelled == ["two/local"]
        statuses = [each.status for each in inbox.payloads if each.type.startswith("run.")]
        assert statuses == ["running", "interrupted"]

    async def test_what_was_not_begun_waits_for_others_whether_it_resumes_or_not(
        self, workers: Workers, act: Puppet, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "tenure.worker")
        door = Between(workers.store)
        asked, answered = asyncio.Event(), asyncio.Event()

        async def late(real: Any, run_id: str) -> Any:
            asked.set()
            await answered.wait()
            return await real(run_id)

        door.rules["get_definition"] = late
        worker = workers.start(store=door)
        runs = [await workers.submit(ONE, recovery=recovery) for recovery in Recovery]
        for run_id in runs:
            await workers.until(run_id, lambda run: run.owner_id is not None)
        await asked.wait()
        worker.drain(at_once=True)
        await eventually(lambda: "have not ended in time" in caplog.text)
        answered.set()
        await workers.returns(worker)
        for run_id in runs:
            run = await workers.run(run_id)
            assert (run.status, run.owner_id) == (RunStatus.QUEUED, None)
        assert act.begun == []


class Reluctant:
    """As a result: a task that is told to end, and takes its time."""

    def __init__(self) -> None:
        self.told, self.free = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: Any) -> tenure.TaskResult:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told.set()
            await self.free.wait()
            raise
        return tenure.TaskResult()


def request_heard(door: Between) -> asyncio.Event:
    """Set once the owner has looked again after it was told of one."""
    heard, seen = asyncio.Event(), 0

    async def look(real: Any, where: Any = RunFilter(), **rest: Any) -> Any:
        nonlocal seen
        page = await real(where, **rest)
        seen += where.canceling and bool(page.items)
        if seen > 1:
            heard.set()
        return page

    door.rules["list_runs"] = look
    return heard


class TestCanceledWhileItDrains:
    @EACH_STORE
    async def test_the_run_ends_canceled_and_is_not_given_back(
        self, workers: Workers, act: Puppet
    ) -> None:
        task = act.results["one/local"] = Reluctant()
        door = Between(workers.store)
        heard = request_heard(door)
        worker = workers.start(store=door)
        run_id = await workers.submit(THREE)
        await act.begins("one/local")
        worker.drain(at_once=True)
        await task.told.wait()
        await workers.runner.cancel(run_id, reason="enough")
        await heard.wait()
        task.free.set()
        await workers.returns(worker)
        run = await workers.run(run_id)
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
        assert run.owner_id is None
        assert (run.steps[0].status, run.steps[0].hosts["local"].status) == ("canceled",) * 2

    async def test_one_that_does_not_resume_ends_canceled_and_not_interrupted(
        self, workers: Workers, act: Puppet
    ) -> None:
        task = act.results["one/local"] = Reluctant()
        door = Between(workers.store)
        heard = request_heard(door)
        worker = workers.start(store=door)
        run_id = await workers.submit(THREE, recovery=Recovery.INTERRUPT)
        await act.begins("one/local")
        worker.drain(at_once=True)
        await task.told.wait()
        await workers.runner.cancel(run_id, reason="enough")
        await heard.wait()
        task.free.set()
        await workers.returns(worker)
        run = await workers.run(run_id)
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
        assert {each.status for each in run.steps} == {"canceled"}

    async def test_hosts_that_were_ended_before_the_request_are_canceled_too(
        self, workers: Workers, act: Puppet
    ) -> None:
        task = act.results["one/b"] = Reluctant()
        act.hold("one/a")
        door = Between(workers.store)
        heard = request_heard(door)
        worker = workers.start(store=door)
        run_id = await workers.submit(workflow(step("one"), hosts=("a", "b")))
        await act.begins("one/a", "one/b")
        worker.drain(at_once=True)
        await task.told.wait()
        await workers.until(run_id, lambda run: run.steps[0].hosts["a"].status == "unknown")
        await workers.runner.cancel(run_id)
        await heard.wait()
        task.free.set()
        await workers.returns(worker)
        run = await workers.run(run_id)
        assert run.status is RunStatus.CANCELED
        assert {host.status for host in run.steps[0].hosts.values()} == {"canceled"}
        assert run.unconfirmed_hosts == ()

    async def test_so_does_one_whose_request_comes_just_before_it_is_given_back(
        self, workers: Workers, act: Puppet
    ) -> None:
        door = Between(workers.store)

        async def after_a_request(real: Any, *args: Any) -> Any:
            given = args[0] if isinstance(args[0], list | tuple) else [args[0]]
            for update in given:
                if getattr(update, "release", False):
                    door.rules.clear()
                    await workers.runner.cancel(update.run_id, reason="enough")
            return await real(*args)

        door.rules |= {"update_run": after_a_request, "update_runs": after_a_request}
        act.hold("one/local")
        worker = workers.start(store=door)
        run_id = await workers.submit(THREE)
        await act.begins("one/local")
        worker.drain(at_once=True)
        await workers.returns(worker)
        run = await workers.run(run_id)
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")


class TestTrouble:
    async def test_a_store_that_is_away_is_asked_until_it_is_back(
        self, workers: Workers, act: Puppet
    ) -> None:
        door = Between(workers.store)
        outage = Outage(door, "claim_runs")
        outage.on = True
        workers.start(store=door)
        run_id = await workers.submit(ONE)
        await outage.refuses(2)
        outage.on = False
        assert (await workers.ended(run_id)).status is RunStatus.SUCCESS

    async def test_the_same_claim_is_sent_again_and_takes_no_expired_lease(
        self, workers: Workers
    ) -> None:
        door = Between(workers.store)
        outage = Outage(door, "claim_runs")
        workers.start(store=door, timing=SHORT)
        await eventually(lambda: (asked := _requests(door)) and asked[-1].expired)
        outage.on = True
        before = len(_requests(door))
        await eventually(lambda: len(_requests(door)) >= before + 3)
        outage.on = False
        refused = _requests(door)[before + 1 : before + 3]
        assert refused[0].claim_id == refused[1].claim_id
        assert not refused[1].expired

    async def test_it_drains_although_the_store_is_away(self, workers: Workers) -> None:
        door = Between(workers.store)
        outage = Outage(door, "claim_runs")
        outage.on = True
        worker = workers.start(store=door)
        await outage.refuses()
        worker.drain()
        await workers.returns(worker)


def _requests(door: Between) -> list[Any]:
    called = [args[0] for name, args in door.calls if name == "claim_runs"]
    return [request for request in called if request.purpose is Purpose.EXECUTE]


@EACH_STORE
async def test_it_is_listed_while_it_works(workers: Workers) -> None:
    worker = workers.start(queues=["default", "reports"], concurrency=7)
    await eventually(workers.store.list_workers)
    listed = await workers.store.list_workers()
    assert [(each.owner_id, each.queues, each.concurrency) for each in listed] == [
        (worker.owner_id, ("default", "reports"), 7)
    ]
    worker.drain()
    await workers.returns(worker)
    assert await workers.store.list_workers() == []


async def test_it_says_at_once_that_it_drains(workers: Workers, act: Puppet) -> None:
    """Before its next look is due: nobody shall wait for it meanwhile."""
    act.hold("one/local")
    door = Between(workers.store)
    worker = workers.start(store=door, reconcile_interval=3600.0)
    run_id = await workers.submit(ONE)
    await act.begins("one/local")
    assert not (await workers.store.list_workers())[0].draining
    worker.drain()

    async def draining() -> bool:
        return bool((await workers.store.list_workers())[0].draining)

    await eventually(draining)
    act.let_go("one/local")
    await workers.returns(worker)
    assert (await workers.run(run_id)).status is RunStatus.SUCCESS
    assert await workers.store.list_workers() == []


async def test_a_store_without_leases_is_refused(tmp_path: Any) -> None:
    with pytest.raises(NotSupported, match="leases"):
        await tenure.Worker(f"file://{tmp_path}/runs").run()


class TestWhatCannotWork:
    def test_is_refused_by_pace_all_at_once(self) -> None:
        with pytest.raises(tenure.InvalidOptions) as refused:
            tenure.Pace(concurrency=0, claim_batch=1001, poll_interval=0, drain_timeout=-1)
        assert refused.value.problems == (
            "concurrency must be a whole number from 1 to 10000, and is 0",
            "claim_batch must be a whole number from 1 to 1000, and is 1001",
            "poll_interval must be a number of seconds, more than zero, and is 0",
            "drain_timeout must be a number of seconds, zero or more, and is -1",
        )

    def test_is_refused_by_the_worker_all_at_once(self) -> None:
        with pytest.raises(tenure.InvalidOptions) as refused:
            tenure.Worker(
                "memory:",
                queues=[],
                pace=tenure.Pace(poll_interval=7.6),
                max_takeovers=-3,
                reconcile_interval=0,
                broker="redis://h",
                visibility_timeout=61,
            )
        told = [problem.split(" ")[0] for problem in refused.value.problems]
        assert told == [
            "queues",
            "renew_interval",  # < visibility_timeout ≤ lease_duration
            "poll_interval",  # ≤ lease_duration / 8
            "reconcile_interval",
            "max_takeovers",
        ]

    def test_is_refused_by_the_runner_too(self) -> None:
        with pytest.raises(tenure.InvalidOptions, match=r"reconcile_interval.*summary_bytes"):
            tenure.Runner("memory:", reconcile_interval=-1, summary_bytes=-1)

    def test_the_edge_of_the_rules_works(self) -> None:
        timing = tenure.Timing(lease_duration=8, renew_interval=4)
        pace = tenure.Pace(poll_interval=1, drain_timeout=0, claim_batch=1, concurrency=1)
        tenure.Worker("memory:", timing=timing, pace=pace, max_takeovers=1)


@pytest.mark.parametrize("queues", [(), ("",), ("default", "a\nb"), "default", ("x" * 101,)])
def test_a_queue_must_have_a_name(queues: Any) -> None:
    with pytest.raises(tenure.InvalidOptions, match="queues must be a list"):
        tenure.Worker("memory:", queues=queues)
