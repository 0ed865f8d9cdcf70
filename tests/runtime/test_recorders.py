"""Recorders and notifiers: they see what the journal holds, and never touch the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tenure
from tenure.model.snapshot import ErrorInfo
from tenure.model.status import RunStatus
from tenure.ports.execution import OutputChunk
from tenure.ports.store import EventLog
from tenure.runtime.callbacks import Callbacks
from tenure.runtime.recorders import RecorderQueue
from tenure.stores.memory import InMemoryStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import (
    BROKEN,
    PATIENCE,
    Between,
    Inbox,
    Onlooker,
    Puppet,
    shell,
    step,
    workflow,
)

RUN_ID = "a-run-to-look-at"
NAMED = tenure.RunOptions(run_id=RUN_ID)
VARIED = workflow(
    step("one", loop=[1, 2], notify=["reload"]),
    step("two", when="false"),
    step("three", retries=1, continue_on_error=True),
    step("four", needs=["one"]),
    hosts=["a", "b"],
    handlers=[tenure.Handler(name="reload", action="act")],
)


async def test_recorders_get_the_journal_event_by_event(
    sqlite: Any, new_runner: NewRunner, act: Puppet
) -> None:
    act.results |= {"three/a": BROKEN, "three/a#2": BROKEN}
    first, second = Onlooker(), Onlooker()
    run = await new_runner(sqlite, recorders=[first, second]).run(VARIED, NAMED)
    assert run.status is RunStatus.SUCCESS
    journal = await sqlite.read_events(RUN_ID)
    assert first.events == second.events == journal
    assert [len(planned.steps) for planned in first.planned] == [4]
    assert [event.position for event in journal] == sorted(event.position for event in journal)


async def test_an_event_is_told_when_it_is_durable_and_not_before(
    new_runner: NewRunner, act: Puppet
) -> None:
    store = InMemoryStore()
    seen: list[int] = []

    class Comparing:
        async def record(self, event: tenure.RecordedEvent) -> None:
            seen.append((await store.get_run(RUN_ID)).version - event.version)

    await new_runner(store, recorders=[Comparing()]).run(VARIED, NAMED)
    assert min(seen) >= 0


class Raising:
    async def record(self, event: tenure.RecordedEvent) -> None:
        raise RuntimeError("no paper left")

    async def notify(self, payload: tenure.CallbackPayload) -> None:
        raise RuntimeError("no line")

    def begin(self, planned: tenure.RunSnapshot) -> None:
        raise RuntimeError("not ready")

    def output(self, chunk: OutputChunk) -> None:
        raise RuntimeError("no screen")


async def test_one_that_raises_is_logged_and_changes_nothing(
    new_runner: NewRunner, caplog: pytest.LogCaptureFixture
) -> None:
    onlooker = Onlooker()
    runner = new_runner(recorders=[Raising(), onlooker], notifier=Raising())
    with caplog.at_level(logging.ERROR, "tenure.runtime"):
        run = await runner.run(workflow(shell("one", "echo hello")))
    assert (run.status, run.version) == (RunStatus.SUCCESS, 2)
    assert onlooker.types[-1] == "run.success"
    assert [chunk.data for chunk in onlooker.chunks] == [b"hello\n"]
    assert {str(each.exc_info[1]) for each in caplog.records if each.exc_info} == {
        "no paper left",
        "no line",
        "not ready",
        "no screen",
    }


async def test_one_that_hangs_holds_up_nothing_and_is_left_in_the_end(
    new_runner: NewRunner,
    act: Puppet,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging:
        async def record(self, event: tenure.RecordedEvent) -> None:
            await asyncio.Event().wait()

    leave = RecorderQueue.leave

    async def impatient(self: RecorderQueue, patience: float) -> None:
        assert patience == 5.0
        await leave(self, 0.02)

    monkeypatch.setattr(RecorderQueue, "leave", impatient)
    run = await new_runner(recorders=[Hanging()]).run(VARIED)
    assert run.status is RunStatus.SUCCESS
    assert [each for each in caplog.messages if "still busy" in each]


class Late(Onlooker):
    """Begins to listen when the run has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()

    async def record(self, event: tenure.RecordedEvent) -> None:
        await self.may.wait()
        await super().record(event)


async def played_before(late: Late, runner: tenure.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole run, with room for a few events only."""
    monkeypatch.setattr("tenure.runtime.recorders.MOST_KEPT", 10)
    leave = RecorderQueue.leave

    async def with_an_open_ear(self: RecorderQueue, patience: float) -> None:
        assert self._backlog.events <= 10
        late.may.set()
        await leave(self, PATIENCE)

    monkeypatch.setattr(RecorderQueue, "leave", with_an_open_ear)
    assert (await runner.run(VARIED, NAMED)).status is RunStatus.SUCCESS


async def test_one_far_behind_is_told_from_the_journal(
    sqlite: Any, new_runner: NewRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late()
    await played_before(late, new_runner(sqlite, recorders=[late]), monkeypatch)
    assert late.events == await sqlite.read_events(RUN_ID)
    assert len(late.events) > 20


async def test_output_is_shown_as_it_comes(any_store: Any, new_runner: NewRunner) -> None:
    onlooker = Onlooker()
    runner = new_runner(any_store, recorders=[onlooker])
    await runner.run(workflow(shell("one", "printf out; printf err >&2")), NAMED)
    shown = {(chunk.step, chunk.host, chunk.stream): chunk.data for chunk in onlooker.chunks}
    assert shown == {("one", "local", "stdout"): b"out", ("one", "local", "stderr"): b"err"}
    assert {chunk.run_id for chunk in onlooker.chunks} == {RUN_ID}


async def test_of_a_run_that_was_refused_nobody_hears(new_runner: NewRunner) -> None:
    onlooker, inbox = Onlooker(), Inbox()
    store = InMemoryStore()
    await new_runner(store).submit(VARIED, NAMED)
    runner = new_runner(store, recorders=[onlooker], notifier=inbox)
    with pytest.raises(tenure.RunExists):
        await runner.run(VARIED, NAMED)
    assert (onlooker.planned, onlooker.events, inbox.payloads) == ([], [], [])


class TestOthersWriteToo:
    """An operator's events are in the journal, and so they are told."""

    async def test_a_request_and_an_annotation_are_told_in_their_place(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        act.hold("one/local", "two/local")
        onlooker, inbox = Onlooker(), Inbox()
        runner = new_runner(any_store, recorders=[onlooker], notifier=inbox)
        running = asyncio.create_task(runner.run(workflow(step("one"), step("two")), NAMED))
        await act.begins("one/local")
        for number in range(3):
            await runner.annotate(RUN_ID, {"number": number}, by="ops")
        act.let_go("one/local")
        await act.begins("two/local")
        await runner.cancel(RUN_ID, reason="enough", by="ops")
        assert (await running).status is RunStatus.CANCELED
        told = [event.type for event in onlooker.events]
        if not isinstance(any_store, EventLog):
            assert set(told) & {"run.annotated", "cancel.requested"} == set()
            return
        assert onlooker.events == await any_store.read_events(RUN_ID)
        assert told.count("run.annotated") == 3
        assert told.index("run.annotated") < told.index("host.success")
        assert told.index("cancel.requested") < told.index("host.canceled")
        assert [each.type for each in inbox.payloads] == [
            event.type for event in onlooker.events if event.status
        ]


class TestWithoutTracking:
    async def test_store_and_notifier_are_not_called_recorders_are(
        self, new_runner: NewRunner
    ) -> None:
        store, onlooker, inbox = Between(InMemoryStore()), Onlooker(), Inbox()
        runner = new_runner(store, recorders=[onlooker], notifier=inbox, tracking=False)
        await runner.open()
        run = await runner.run(
            workflow(step("one"), shell("two", "echo hi")),
            tenure.RunOptions(run_id=RUN_ID, store=store, notifier=inbox),
        )
        await runner.close()
        assert (run.run_id, run.status) == (RUN_ID, RunStatus.SUCCESS)
        assert run.steps[1].hosts["local"].stdout == "hi\n"
        assert onlooker.types[-1] == "run.success"
        assert (store.calls, inbox.payloads) == ([], [])

    async def test_nothing_remains(self, new_runner: NewRunner) -> None:
        runner = new_runner(tracking=False)
        run = await runner.run(workflow(step("one")))
        with pytest.raises(tenure.RunNotFound):
            await runner.get_run(run.run_id)
        assert not (await runner.list_runs()).items

    async def test_submitting_is_refused(self, new_runner: NewRunner) -> None:
        with pytest.raises(ValueError, match="tracking=False"):
            await new_runner(tracking=False).submit(workflow(step("one")))


NOTIFYING = "a-run-that-notifies"
NOTIFIED = tenure.RunOptions(run_id=NOTIFYING)
ONE = workflow(step("one"))
STATUSES = [
    "run.queued",
    "run.running",
    "step.running",
    "host.running",
    "host.success",
    "step.success",
    "run.success",
]
AT_ONCE = tenure.CallbackSettings(attempts=3, delay=0, flush=PATIENCE)
ONCE = tenure.CallbackSettings(attempts=1, flush=PATIENCE)


class Notifier:
    """Hears, and then does what a test wants of it."""

    def __init__(
        self, then: Callable[[tenure.CallbackPayload], Awaitable[None]] | None = None
    ) -> None:
        self.payloads: list[tenure.CallbackPayload] = []
        self._then = then
        self._news = asyncio.Condition()

    async def notify(self, payload: tenure.CallbackPayload) -> None:
        async with self._news:
            self.payloads.append(payload)
            self._news.notify_all()
        if self._then is not None:
            await self._then(payload)

    @property
    def types(self) -> list[str]:
        return [payload.type for payload in self.payloads]

    async def hears(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.payloads) >= times)


async def hang(_: tenure.CallbackPayload) -> None:
    await asyncio.Event().wait()


class TestWhatItHears:
    @pytest.mark.parametrize("loop", [None, ["only"]], ids=["once", "looped"])
    async def test_why_a_host_its_step_and_the_run_failed(
        self, any_store: Any, new_runner: NewRunner, act: Puppet, loop: list[str] | None
    ) -> None:
        act.results["one/b" if loop is None else "one/b[0]"] = BROKEN
        notifier = Notifier()
        broken = workflow(step("one", loop=loop), hosts=("a", "b"))
        await new_runner(any_store, notifier=notifier).run(broken, NOTIFIED)
        why = {each.type: each.error for each in notifier.payloads if each.error}
        assert why == {
            "host.failed": ErrorInfo(
                kind="exit",
                message="it broke",
                step="one",
                host="b",
                exit_code=None if loop else 3,
            ),
            "step.failed": why["run.failed"],
            "run.failed": why["run.failed"],
        }
        assert "it broke" in why["run.failed"].message

    async def test_all_of_a_run_before_the_call_returns(
        self, any_store: Any, new_runner: NewRunner
    ) -> None:
        notifier = Notifier()
        run = await new_runner(any_store, notifier=notifier).run(ONE, NOTIFIED)
        assert notifier.types == STATUSES
        last = notifier.payloads[-1]
        assert (last.run_status, last.version, last.timestamp) == (
            RunStatus.SUCCESS,
            run.version,
            run.finished_at,
        )

    async def test_a_run_may_have_one_of_its_own_whoever_changes_it(
        self, queueing: Any, new_runner: NewRunner
    ) -> None:
        usual, special = Notifier(), Notifier()
        runner = new_runner(queueing, notifier=usual)
        await runner.submit(ONE, tenure.RunOptions(run_id=NOTIFYING, notifier=special))
        await runner.submit(ONE, tenure.RunOptions(run_id="another-run"))
        for run_id in (NOTIFYING, "another-run"):
            await runner.cancel(run_id)
        await runner.close()
        assert {each.run_id for each in special.payloads} == {NOTIFYING}
        assert {each.run_id for each in usual.payloads} == {"another-run"}
        assert special.types == usual.types == ["run.queued", "run.canceled"]


class TestWhenItFails:
    async def test_it_is_called_again_and_order_is_kept(
        self, any_store: Any, new_runner: NewRunner
    ) -> None:
        failed: set[str] = set()

        async def fail_first(payload: tenure.CallbackPayload) -> None:
            if payload.type not in failed:
                failed.add(payload.type)
                raise ConnectionError("not now")

        notifier = Notifier(fail_first)
        runner = new_runner(any_store, notifier=notifier, callbacks=AT_ONCE)
        await runner.run(ONE, NOTIFIED)
        await notifier.hears(12)
        await runner.close()
        assert notifier.types == [each for each in STATUSES for _ in range(2)]
        assert (await any_store.get_run(NOTIFYING)).callback_error is None

    async def test_what_is_given_up_is_in_record_and_journal(
        self, any_store: Any, new_runner: NewRunner
    ) -> None:
        async def fail(payload: tenure.CallbackPayload) -> None:
            if payload.type.startswith("run."):
                raise ConnectionError("the password is hunter2")

        notifier = Notifier(fail)
        runner = new_runner(any_store, notifier=notifier, callbacks=ONCE)
        run = await runner.run(ONE, NOTIFIED)
        await runner.close()
        assert notifier.types == STATUSES
        after = await any_store.get_run(NOTIFYING)
        error = after.callback_error
        assert error is not None
        assert (error.target, error.event, error.attempts) == ("notifier", "run.success", 1)
        assert error.error == "the notifier raised ConnectionError"
        assert (after.status, after.error, after.finished_at) == (
            RunStatus.SUCCESS,
            None,
            run.finished_at,
        )
        if isinstance(any_store, EventLog):
            said = [
                event.data["event"]
                for event in await any_store.read_events(NOTIFYING)
                if event.type == "callback.failed" and event.data is not None
            ]
            assert said == ["run.queued", "run.running", "run.success"]

    async def test_nobody_who_changes_a_run_waits_for_it(
        self, queueing: Any, new_runner: NewRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The end of a run gives it its patience and no more, closing its time for flushing."""
        patience: list[float] = []
        notified = Callbacks.notified

        async def impatient(self: Callbacks, run_id: str, seconds: float) -> None:
            patience.append(seconds)
            await notified(self, run_id, 0.01)

        monkeypatch.setattr(Callbacks, "notified", impatient)
        settings = tenure.CallbackSettings(timeout=3600, flush=0.01)
        runner = new_runner(queueing, notifier=Notifier(hang), callbacks=settings)
        async with asyncio.timeout(PATIENCE):
            await runner.submit(ONE, tenure.RunOptions(run_id="a-queued-run"))
            await runner.cancel("a-queued-run")
            assert (await runner.run(ONE, NOTIFIED)).status is RunStatus.SUCCESS
            await runner.close()
        (granted,) = patience
        assert 4.0 < granted <= 5.0
        run = await queueing.get_run(NOTIFYING)
        assert run.callback_error is not None
        assert run.callback_error.error == (
            "the process ended before it was delivered, with 6 more behind it"
        )

    async def test_one_runs_notifier_holds_up_no_other_runs(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        """However many hang, the next one is called at once."""
        runner = new_runner(memory, callbacks=tenure.CallbackSettings(timeout=3600, flush=0))
        for number in range(50):
            stuck = tenure.RunOptions(run_id=f"stuck-{number:04}", notifier=Notifier(hang))
            await runner.submit(ONE, stuck)
        healthy = Notifier()
        await runner.run(ONE, tenure.RunOptions(run_id=NOTIFYING, notifier=healthy))
        assert healthy.types == STATUSES
