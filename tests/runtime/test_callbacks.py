"""A runner tells receivers of its runs, over real HTTP, with an outbox and without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.model.codec import full_record
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import Position
from tenure.ports.callbacks import Outbox
from tenure.ports.store import EventLog
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import embedded_run
from tests.notifiers.receiver import Receiver
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, PATIENCE, Between, Puppet, step, workflow
from tests.runtime_relay.hooks import (
    AT_ONCE,
    EVERYTHING,
    MUCH_LATER,
    bare,
    firsts,
    hook,
    place,
    types,
)

RUN_ID = "a-run-that-tells"
ONE = workflow(step("one"))
TWO_HOSTS = workflow(
    step("one", continue_on_error=True), step("two"), step("three", when="false"), hosts=("a", "b")
)
ONCE = tenure.CallbackSettings(allow_private=True, attempts=1, flush=PATIENCE)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


def to(*targets: Any, run_id: str | None = RUN_ID, **rest: Any) -> tenure.RunOptions:
    return tenure.RunOptions(run_id=run_id, callbacks=targets, **rest)


async def failures_in_the_journal(store: EventLog, run_id: str = RUN_ID) -> list[Any]:
    return [event for event in await store.read_events(run_id) if event.type == "callback.failed"]


class TestWhatIsTold:
    async def test_every_status_once_and_in_order(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.results["one/b"] = BROKEN
        runner = new_runner(any_store, callbacks=AT_ONCE)
        run = await runner.run(TWO_HOSTS, to(hook(receiver)))
        await runner.close()
        told = receiver.received
        assert [place(each) for each in told] == sorted({place(each) for each in told})
        assert len({each.headers["webhook-id"] for each in told}) == len(told)
        assert types(told)[0] == "run.running"
        assert types(told)[-1] == "run.success"
        assert sorted(types(told)[1:-1]) == sorted(
            ["host.running", "host.running", "host.success"] * 2
            + ["host.failed", "host.success"]
            + ["step.running", "step.running", "step.failed", "step.success", "step.skipped"]
        )
        if isinstance(any_store, EventLog):
            journal = [each for each in await any_store.read_events(RUN_ID) if each.status]
            assert [place(each) for each in told] == [each.position for each in journal]
        last = told[-1].json
        assert (last["run_status"], last["version"]) == ("success", run.version)
        failed = next(each.json for each in told if each.json["type"] == "host.failed")
        assert (failed["status"], failed["run_status"]) == ("failed", "running")
        assert (failed["step"], failed["host"]) == ("one", "b")

    async def test_a_target_gets_what_it_asked_for(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        runner = new_runner(any_store, callbacks=AT_ONCE)
        only_steps = hook(receiver, "200", name="steps", events=("step",))
        await runner.run(ONE, to(hook(receiver, events=("run",)), only_steps))
        await runner.close()
        came = receiver.received
        assert types(each for each in came if each.path == "ok") == ["run.running", "run.success"]
        assert types(each for each in came if each.path == "200") == [
            "step.running",
            "step.success",
        ]

    async def test_targets_of_settings_workflow_and_options_are_told(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        settings = tenure.CallbackSettings(
            allow_private=True,
            flush=PATIENCE,
            targets=(tenure.CallbackSpec(url=receiver.url("201")),),
        )
        runner = new_runner(any_store, callbacks=settings)
        flow = workflow(step("one"), callbacks=[tenure.CallbackSpec(url=receiver.url("202"))])
        await runner.run(flow, to(tenure.CallbackSpec(url=receiver.url("204"))))
        await runner.close()
        assert sorted(each.path for each in receiver.received) == sorted(["201", "202", "204"] * 2)

    async def test_queued_and_canceled_by_an_operator(
        self, queueing: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        runner = new_runner(queueing, callbacks=AT_ONCE)
        await runner.submit(ONE, to(hook(receiver)))
        await runner.cancel(RUN_ID, reason="enough")
        assert (await runner.cancel(RUN_ID)).status is RunStatus.CANCELED
        await runner.close()
        assert types(receiver.received) == ["run.queued", "run.canceled"]

    async def test_two_who_cancel_at_once_tell_the_same(
        self, queueing: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """Neither can know that the other was faster; the id says so to the receiver."""
        store, both_have_read = Between(queueing), asyncio.Barrier(2)
        runners = [new_runner(store, callbacks=AT_ONCE) for _ in range(2)]
        await runners[0].submit(ONE, to(hook(receiver)))
        await runners[1].open()

        async def read_together(real: Any, run_id: str) -> Any:
            run = await real(run_id)
            if not run.ended:
                await both_have_read.wait()
            return run

        store.rules["get_run"] = read_together
        await asyncio.gather(*(runner.cancel(RUN_ID) for runner in runners))
        for runner in runners:
            await runner.close()
        assert types(firsts(receiver.received)) == ["run.queued", "run.canceled"]

    async def test_canceled_by_its_owner_on_request(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/local")
        runner = new_runner(any_store, callbacks=AT_ONCE)
        running = asyncio.create_task(runner.run(ONE, to(hook(receiver, events=("run",)))))
        await act.begins("one/local")
        await runner.cancel(RUN_ID)
        await running
        await runner.close()
        assert types(receiver.received) == ["run.running", "run.canceled"]

    async def test_request_that_finds_it_canceled_by_its_owner_tells_nothing(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner, act: Puppet
    ) -> None:
        """It read a running run; when its update comes, the owner has ended it."""
        act.hold("one/local")
        store, ended = Between(any_store), asyncio.Event()

        async def late(real: Any, update: Any) -> Any:
            if update.if_unowned is not None:
                await ended.wait()
            return await real(update)

        store.rules["update_run"] = late
        owner = new_runner(any_store, callbacks=AT_ONCE)
        other = new_runner(store, callbacks=AT_ONCE)
        await other.open()
        running = asyncio.create_task(owner.run(ONE, to(hook(receiver, events=("run",)))))
        await act.begins("one/local")
        asking = asyncio.create_task(other.cancel(RUN_ID))
        running.cancel()
        await asyncio.wait([running])
        ended.set()
        assert (await asking).status is RunStatus.CANCELED
        for runner in (owner, other):
            await runner.close()
        assert types(receiver.received) == ["run.running", "run.canceled"]

    async def test_interrupted_by_reconcile_with_leases(
        self, receiver: Receiver, new_runner: NewRunner, sqlite: SQLiteStore, memory: InMemoryStore
    ) -> None:
        for store in (sqlite, memory):
            left = embedded_run("gone", run_id=RUN_ID, seconds=0, callbacks=(hook(receiver),))
            await store.create_run(left)
            runner = new_runner(store, callbacks=AT_ONCE)
            assert await runner.reconcile(reason="restarted") == 1
            await runner.close()
            assert types(receiver.received) == ["run.running", "run.interrupted"]
            assert receiver.received[-1].json["error"]["message"] == "restarted"
            receiver.received.clear()

    async def test_interrupted_at_the_start_of_a_runner_without_leases(
        self, receiver: Receiver, new_runner: NewRunner, tmp_path: Path
    ) -> None:
        """What the dead process had in its memory is gone with it."""
        dead = FileStore(tmp_path)
        await dead.create_run(embedded_run("gone", run_id=RUN_ID, callbacks=(hook(receiver),)))
        await dead.close()
        async with FileStore(tmp_path) as store:
            runner = new_runner(store, callbacks=AT_ONCE)
            await runner.open()
            await runner.close()
        assert types(receiver.received) == ["run.interrupted"]

    async def test_annotations_change_no_status_and_are_told_nobody(
        self, queueing: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        runner = new_runner(queueing, callbacks=AT_ONCE)
        await runner.submit(ONE, to(hook(receiver)))
        await runner.annotate(RUN_ID, {"ticket": 7})
        await runner.close()
        assert types(receiver.received) == ["run.queued"]

    async def test_without_tracking_nobody(self, receiver: Receiver, new_runner: NewRunner) -> None:
        runner = new_runner(tracking=False, callbacks=AT_ONCE)
        run = await runner.run(ONE, to(hook(receiver)))
        await runner.close()
        assert (run.status, receiver.received) == (RunStatus.SUCCESS, [])


class TestOrder:
    @pytest.mark.slow
    async def test_fifty_events_keep_it_through_random_failures(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """Three runs of fifty events at once, two attempts in five fail."""
        stubborn = tenure.CallbackSettings(
            allow_private=True, attempts=1000, delay=0, flush=PATIENCE
        )
        flow = workflow(*(step(f"step {number}") for number in range(12)))
        runner = new_runner(any_store, callbacks=stubborn)
        runs = await asyncio.gather(
            *(
                runner.run(flow, to(hook(receiver, f"flaky?seed={seed}"), run_id=f"flaky-{seed}-x"))
                for seed in range(3)
            )
        )

        def places(run: tenure.RunSnapshot) -> list[Position]:
            return [place(each) for each in receiver.received if each.json["run_id"] == run.run_id]

        while any(len(set(places(run))) < 50 for run in runs):
            await receiver.got(len(receiver.received) + 1)
        await runner.close()
        assert len(receiver.received) > 200
        for run in runs:
            assert places(run) == sorted(places(run))
            assert len(set(places(run))) == 50
            assert run.status is RunStatus.SUCCESS

    @pytest.mark.slow
    async def test_two_runners_on_one_store_deliver_each_once_and_in_order(
        self, tmp_path: Path, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        path, runs = tmp_path / "runs.db", 20
        async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as two:
            runners = [new_runner(store, callbacks=AT_ONCE) for store in (one, two)]
            done = await asyncio.gather(
                *(
                    runners[number % 2].run(ONE, to(hook(receiver), run_id=None))
                    for number in range(runs)
                )
            )
            for runner in runners:
                await runner.close()
            assert {each.state for each in (await one.list_deliveries(limit=500)).items} == {
                DeliveryState.DELIVERED
            }
        ids = [each.headers["webhook-id"] for each in receiver.received]
        assert len(ids) == len(set(ids)) == runs * 6
        for run in done:
            mine = [each for each in receiver.received if each.json["run_id"] == run.run_id]
            assert [place(each) for each in mine] == sorted(place(each) for each in mine)


class TestTrouble:
    @pytest.mark.parametrize("answer", ["ok", "500", "410", "drop", "nobody"])
    async def test_record_is_the_one_without_callbacks(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner, act: Puppet, answer: str
    ) -> None:
        """But for ids, times and ``callback_error``; and without an outbox the notes that a
        callback was given up are versions too."""
        act.results["one/b"] = BROKEN
        runner = new_runner(any_store, callbacks=ONCE)
        target = hook(receiver, answer)
        if answer == "nobody":
            async with Receiver() as closed:
                target = hook(closed)
        without = await runner.run(TWO_HOSTS)
        run = await runner.run(TWO_HOSTS, to(target))
        await runner.close()
        told = await any_store.get_run(RUN_ID)
        assert (told.callback_error is None) == (answer == "ok")
        if isinstance(any_store, Outbox):
            assert bare(full_record(told)) == bare(full_record(without))
            assert (told.version, told.updated_at) == (run.version, run.updated_at)
        else:
            same = {"version": 0}
            assert bare(full_record(told)) | same == bare(full_record(without)) | same
        assert (told.started_at, told.finished_at) == (run.started_at, run.finished_at)

    async def test_receiver_that_hangs_holds_up_nothing(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """The run ends while its first callback is on its way; nobody waits for an hour."""
        patient = tenure.CallbackSettings(allow_private=True, timeout=3600, flush=0)
        runner = new_runner(any_store, callbacks=patient)
        run = await asyncio.wait_for(runner.run(ONE, to(hook(receiver, "hang"))), PATIENCE)
        assert run.status is RunStatus.SUCCESS
        await receiver.got(1)
        await asyncio.wait_for(runner.close(), PATIENCE)
        assert types(receiver.received) == ["run.running"]

    async def test_dead_letter_shows_on_the_run_until_it_is_redelivered(
        self, receiver: Receiver, new_runner: NewRunner, sqlite: SQLiteStore, memory: InMemoryStore
    ) -> None:
        stores: list[Any] = [sqlite, memory]
        for number, store in enumerate(stores):
            target = hook(receiver, f"turns?of=410,200&n={number}", events=("run",))
            first = new_runner(store, callbacks=ONCE)
            await first.run(ONE, to(target))
            await first.close()
            run = await store.get_run(RUN_ID)
            assert run.callback_error is not None
            assert (run.callback_error.event, run.callback_error.error) == (
                "run.running",
                "answered 410",
            )
            (dead,) = (await store.list_deliveries(state=DeliveryState.DEAD)).items
            await store.requeue_delivery(dead.id)
            seen = len(receiver.received)
            second = new_runner(store, callbacks=ONCE)
            await second.open()
            *_, again = await receiver.got(seen + 1)
            await second.close()
            assert again.headers["webhook-id"] == dead.id
            assert again.headers["tenure-redelivery"] == "true"
            cleared = await store.get_run(RUN_ID)
            assert cleared.callback_error is None
            assert cleared.version == run.version

    async def test_without_an_outbox_each_that_is_given_up_is_an_event(
        self, tmp_path: Path, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """Also those that look the same: two hosts that start, the same answer."""
        async with FileStore(tmp_path) as store:
            runner = new_runner(store, callbacks=ONCE)
            target = hook(receiver, "410", events=("host",))
            await runner.run(workflow(step("one"), hosts=("a", "b")), to(target))
            await runner.close()
            said = await failures_in_the_journal(store)
            run = await store.get_run(RUN_ID)
        assert [event.data["event"] for event in said] == ["host.running"] * 2 + [
            "host.success"
        ] * 2
        assert {(event.message, event.data["attempts"]) for event in said} == {("answered 410", 1)}
        assert run.callback_error is not None
        assert run.callback_error.event == "host.success"

    async def test_what_was_in_memory_when_the_process_ends_is_recorded(
        self, tmp_path: Path, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        async with FileStore(tmp_path) as store:
            runner = new_runner(store, callbacks=MUCH_LATER)
            await runner.run(ONE, to(hook(receiver, "503")))
            await runner.close()
            (said,) = await failures_in_the_journal(store)
            run = await store.get_run(RUN_ID)
        assert run.status is RunStatus.SUCCESS
        assert said.message == (
            "answered 503; the process ended before it was delivered, with 5 more behind it"
        )
        assert (said.data["event"], said.data["attempts"]) == ("run.running", 1)
        assert run.callback_error is not None
        assert run.callback_error.error == said.message

    async def test_store_that_fails_while_callbacks_are_given_up_is_asked_again(
        self, tmp_path: Path, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """A driver's own error, before the write and after it: noted once all the same."""
        async with FileStore(tmp_path) as real_store:
            store = Between(real_store)
            failures = ["before", "after"]

            async def fail(real: Any, update: Any) -> Any:
                if update.lease is not None or not failures:
                    return await real(update)
                if failures.pop() == "before":
                    raise ConnectionError("not now")
                await real(update)
                raise ConnectionError("the answer was lost")

            store.rules["update_run"] = fail
            runner = new_runner(store, callbacks=ONCE)
            await runner.run(ONE, to(hook(receiver, "410", events=("run",))))
            await runner.close()
            said = await failures_in_the_journal(real_store)
        assert not failures
        assert [event.data["event"] for event in said] == ["run.running", "run.success"]

    async def test_target_called_notifier_is_a_target_like_any_other(
        self, tmp_path: Path, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        async with FileStore(tmp_path) as store:
            heard: list[str] = []

            class Notifier:
                async def notify(self, payload: tenure.CallbackPayload) -> None:
                    heard.append(payload.type)

            runner = new_runner(store, callbacks=AT_ONCE, notifier=Notifier())
            await runner.run(ONE, to(hook(receiver, name="notifier", events=EVERYTHING)))
            await runner.close()
        assert types(receiver.received) == heard
        assert heard[-1] == "run.success"


class TestEventLoops:
    async def test_run_sync_tells_in_a_loop_of_its_own_each_time(
        self, tmp_path: Path, receiver: Receiver, act: Puppet
    ) -> None:
        actions = {act.spec.name: Puppet()}
        for url in (f"sqlite:///{tmp_path / 'runs.db'}", f"file://{tmp_path / 'runs'}"):
            runner = tenure.Runner(url, callbacks=AT_ONCE, actions=actions)
            options = to(hook(receiver, events=("run",)), run_id=None)
            for _ in range(2):
                await asyncio.to_thread(runner.run_sync, workflow(step("one")), options)
        assert types(receiver.received) == ["run.running", "run.success"] * 4
