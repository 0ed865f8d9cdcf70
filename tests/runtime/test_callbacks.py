"""A runner tells receivers of its runs, over real HTTP, with an outbox and without; what closing it
waits for, what it leaves to the next, and what it never does."""

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
from tenure.ports.environment import BootTime
from tenure.ports.store import EventLog
from tenure.runtime.options import CallbackSettings
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.system import SystemClock
from tenure.testing.clock import ManualClock
from tenure.testing.factories import embedded_run
from tests.notifiers.receiver import Receiver
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, PATIENCE, Between, Puppet, step, workflow
from tests.runtime.victim import victim
from tests.runtime_relay.hooks import (
    AT_ONCE,
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
        assert types(told)[:2] == ["run.queued", "run.running"]
        assert types(told)[-1] == "run.success"
        assert sorted(types(told)[2:-1]) == sorted(
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
        assert sorted(each.path for each in receiver.received) == sorted(["201", "202", "204"] * 3)

    async def test_queued_and_canceled_by_an_operator(
        self, queueing: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        runner = new_runner(queueing, callbacks=AT_ONCE)
        await runner.submit(ONE, to(hook(receiver)))
        await runner.cancel(RUN_ID, reason="enough")
        assert (await runner.cancel(RUN_ID)).status is RunStatus.CANCELED
        await runner.close()
        assert types(receiver.received) == ["run.queued", "run.canceled"]

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

        while any(len(set(places(run))) < 51 for run in runs):
            await receiver.got(len(receiver.received) + 1)
        await runner.close()
        assert len(receiver.received) > 200
        for run in runs:
            assert places(run) == sorted(places(run))
            assert len(set(places(run))) == 51
            assert run.status is RunStatus.SUCCESS


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
        assert types(receiver.received) == ["run.queued"]

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
                "run.queued",
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
            "answered 503; the process ended before it was delivered, with 6 more behind it"
        )
        assert (said.data["event"], said.data["attempts"]) == ("run.queued", 1)
        assert run.callback_error is not None
        assert run.callback_error.error == said.message


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
        assert types(receiver.received) == ["run.queued", "run.running", "run.success"] * 4


AT_ANY_PRICE = CallbackSettings(allow_private=True, timeout=3600, flush=3600)
NOT_AT_ALL = CallbackSettings(allow_private=True, timeout=3600, flush=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def outbox(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield InMemoryStore(clock)
    else:
        async with await SQLiteStore.open(tmp_path / "runs.db", clock) as sqlite:
            yield sqlite


async def states(outbox: Any) -> list[tuple[str, str, int]]:
    """Oldest first."""
    page = await outbox.list_deliveries(limit=500)
    return [(each.event.type, each.state.value, each.attempts) for each in page.items[::-1]]


class TestWaiting:
    async def test_for_the_first_attempt_of_each(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        runner = new_runner(any_store, callbacks=AT_ANY_PRICE)
        await runner.run(ONE, to(hook(receiver, "gate", events=("run",))))
        closing = asyncio.create_task(runner.close())
        await receiver.got(1)
        assert not closing.done()
        receiver.gate.set()
        await asyncio.wait_for(closing, PATIENCE)
        assert types(receiver.received) == ["run.queued", "run.running", "run.success"]

    async def test_not_for_the_second(
        self, outbox: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        settings = CallbackSettings(allow_private=True, delay=3600, flush=3600)
        runner = new_runner(outbox, callbacks=settings)
        await runner.run(ONE, to(hook(receiver, "503", events=("run",))))
        await asyncio.wait_for(runner.close(), PATIENCE)
        assert await states(outbox) == [
            ("run.queued", "waiting", 1),
            ("run.running", "waiting", 0),
            ("run.success", "waiting", 0),
        ]

    async def test_a_runner_with_nothing_to_tell_does_not_ask_the_store(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        store = Between(memory)
        runner = new_runner(store, callbacks=AT_ANY_PRICE)
        await runner.run(ONE)
        await asyncio.wait_for(runner.close(), PATIENCE)
        assert store.count("list_deliveries") == 0


class TestWhatIsLeft:
    async def test_stays_in_the_outbox_and_the_next_runner_delivers_it(
        self, outbox: Any, clock: ManualClock, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        first = new_runner(outbox, callbacks=NOT_AT_ALL)
        await first.run(ONE, to(hook(receiver, "gate", events=("run",))))
        await receiver.got(1)
        await asyncio.wait_for(first.close(), PATIENCE)
        assert await states(outbox) == [
            ("run.queued", "waiting", 1),
            ("run.running", "waiting", 0),
            ("run.success", "waiting", 0),
        ]
        (waiting,) = [each for each in (await outbox.list_deliveries()).items if each.attempts]
        assert waiting.last_error == "stopped while sending; the target may have got it"
        clock.advance(3600)
        receiver.gate.set()
        second = new_runner(outbox, callbacks=AT_ONCE)
        await second.open()
        await receiver.got(4)
        await second.close()
        assert types(receiver.received) == [
            "run.queued",
            "run.queued",
            "run.running",
            "run.success",
        ]
        assert len({each.headers["webhook-id"] for each in receiver.received}) == 3
        assert [state for _, state, _ in await states(outbox)] == ["delivered"] * 3

    async def test_wall_clocks_that_jump_change_nothing(
        self, outbox: Any, clock: ManualClock, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """Neither a day ahead, which makes nothing due, nor a day back."""
        first = new_runner(outbox, callbacks=MUCH_LATER)
        await first.run(ONE, to(hook(receiver, "turns?of=503,200", events=("run",))))
        await first.close()
        now = clock.now()
        clock.set_wall(now.replace(year=now.year + 1))
        second = new_runner(outbox, callbacks=AT_ONCE)
        await second.open()
        await second.close()
        assert len(receiver.received) == 1
        clock.set_wall(now.replace(year=now.year - 1))
        clock.advance(3600)
        third = new_runner(outbox, callbacks=AT_ONCE)
        await third.open()
        await receiver.got(3)
        await third.close()


class TestNothingRemains:
    @pytest.mark.parametrize("path", ["ok", "hang", "503"])
    async def test_no_task_and_no_connection(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner, path: str
    ) -> None:
        settings = CallbackSettings(allow_private=True, timeout=3600, delay=3600, flush=0.05)
        before = asyncio.all_tasks()
        runner = new_runner(any_store, callbacks=settings)
        await runner.run(ONE, to(hook(receiver, path)))
        await runner.close()
        await receiver.alone()
        receivers_own = {task for task in asyncio.all_tasks() if "Receiver" in repr(task)}
        assert asyncio.all_tasks() - receivers_own == before

    async def test_when_closing_itself_is_cancelled(
        self, any_store: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """Somebody presses Ctrl-C while it waits."""
        before = asyncio.all_tasks()
        runner = new_runner(any_store, callbacks=AT_ANY_PRICE)
        await runner.run(ONE, to(hook(receiver, "hang")))
        closing = asyncio.create_task(runner.close())
        await receiver.got(1)
        for _ in range(50):
            await asyncio.sleep(0)
        closing.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([closing])
        assert closing.cancelled()
        await receiver.alone()
        receivers_own = {task for task in asyncio.all_tasks() if "Receiver" in repr(task)}
        assert asyncio.all_tasks() - receivers_own == before


KILLED = "a-run-that-was-killed"


class LaterToday(SystemClock):
    """Every claim of the dead has run out."""

    def boot_time(self) -> BootTime:
        now = super().boot_time()
        return BootTime(now.boot_id, now.nanoseconds + 3600 * 10**9)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["ok", "gate"])
async def test_a_killed_runner_leaves_nothing_untold(tmp_path: Path, path: str) -> None:
    """``ok``: killed when some had arrived; ``gate``: killed while the first was on its way."""
    database = tmp_path / "runs.db"
    async with Receiver() as receiver:
        url = f"sqlite:///{database}"
        assert await asyncio.to_thread(_kill_when_begun, url, receiver.url(path)) == -9
        receiver.gate.set()
        async with await SQLiteStore.open(database, LaterToday()) as store:
            async with tenure.Runner(store, callbacks=AT_ONCE) as runner:
                assert (await runner.get_run(KILLED)).status is RunStatus.INTERRUPTED
            journal = [each for each in await store.read_events(KILLED) if each.status is not None]
            owed = (await store.list_deliveries(limit=500)).items
    told = firsts(receiver.received)
    assert [place(each) for each in told] == [event.position for event in journal]
    assert types(told)[-1] == "run.interrupted"
    assert {each.state for each in owed} == {DeliveryState.DELIVERED}
    assert {each.headers["webhook-id"] for each in told} == {each.id for each in owed}


def _kill_when_begun(url: str, hook: str) -> int | None:
    with victim(url, KILLED, hook) as process:
        process.kill()
        process.wait()
        return process.returncode
