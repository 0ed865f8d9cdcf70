"""Recorders and notifier: they see what the journal holds, and never touch the run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.model.update import Position
from tenure.ports.execution import OutputChunk
from tenure.ports.store import EventLog
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


async def test_the_notifier_gets_every_status_in_the_same_order(
    sqlite: Any, new_runner: NewRunner
) -> None:
    inbox = Inbox()
    await new_runner(sqlite, notifier=inbox).run(VARIED, NAMED)
    journal = [event for event in await sqlite.read_events(RUN_ID) if event.status]
    assert [(each.type, each.version, each.seq) for each in inbox.payloads] == [
        (event.type, event.version, event.seq) for event in journal
    ]
    last = inbox.payloads[-1]
    assert (last.type, last.status, last.run_status) == ("run.success", "success", "success")
    assert (last.run_id, last.workflow_name) == (RUN_ID, "deploy")
    of_one = [each for each in inbox.payloads if each.step == "one"]
    host = next(each for each in of_one if each.type == "host.success")
    assert (host.step, host.host, host.status, host.run_status) == (
        "one",
        "a",
        "success",
        "running",
    )


async def test_a_notifier_for_one_run_replaces_the_runners(new_runner: NewRunner) -> None:
    usual, special = Inbox(), Inbox()
    runner = new_runner(notifier=usual)
    await runner.run(workflow(step("one")), tenure.RunOptions(notifier=special))
    assert (usual.payloads, bool(special.payloads)) == ([], True)
    await runner.run(workflow(step("one")))
    assert usual.payloads


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


async def test_a_slow_one_gets_everything_in_the_end(new_runner: NewRunner) -> None:
    class Slow(Onlooker):
        async def record(self, event: tenure.RecordedEvent) -> None:
            await asyncio.sleep(0.001)
            await super().record(event)

    slow = Slow()
    run = await new_runner(recorders=[slow]).run(VARIED)
    assert run.status is RunStatus.SUCCESS
    assert slow.types[-1] == "run.success"


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
        assert self._heard.events <= 10
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


async def test_without_a_journal_the_log_says_how_much_it_missed(
    new_runner: NewRunner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory, late = InMemoryStore(), Late()
    store = Between(memory)
    del store.read_events
    await played_before(late, new_runner(store, recorders=[late]), monkeypatch)
    journal = await memory.read_events(RUN_ID)
    assert late.events == journal[: len(late.events)]
    missed = len(journal) - len(late.events)
    assert missed > 0
    assert [each for each in caplog.messages if f": {missed} events up to version" in each]


async def test_output_is_shown_as_it_comes(any_store: Any, new_runner: NewRunner) -> None:
    onlooker = Onlooker()
    runner = new_runner(any_store, recorders=[onlooker])
    await runner.run(workflow(shell("one", "printf out; printf err >&2")), NAMED)
    shown = {(chunk.step, chunk.host, chunk.stream): chunk.data for chunk in onlooker.chunks}
    assert shown == {("one", "local", "stdout"): b"out", ("one", "local", "stderr"): b"err"}
    assert {chunk.run_id for chunk in onlooker.chunks} == {RUN_ID}


async def test_what_a_function_writes_is_shown_and_kept_too(
    sqlite: Any, new_runner: NewRunner, act: Puppet
) -> None:
    from tenure.ports.store import LogKey

    class Talking(Puppet):
        async def apply(self, task: Any, transport: Any, output: Any) -> Any:
            await output.write("stdout", b"said by a function\n")
            return await super().apply(task, transport, output)

    onlooker, talking = Onlooker(), Talking()
    runner = new_runner(sqlite, recorders=[onlooker], actions={"act": talking})
    run = await runner.run(workflow(step("one")), NAMED)
    assert run.steps[0].hosts["local"].stdout == "said by a function\n"
    assert [chunk.data for chunk in onlooker.chunks] == [b"said by a function\n"]
    kept = await sqlite.read(RUN_ID, LogKey(step=0, host="local", stream="stdout"))
    assert kept.data == b"said by a function\n"


async def test_the_plan_is_told_before_the_first_event(new_runner: NewRunner) -> None:
    order: list[str] = []

    class Beginning(Onlooker):
        def begin(self, planned: tenure.RunSnapshot) -> None:
            order.append(f"begin {len(planned.steps)}")

        async def record(self, event: tenure.RecordedEvent) -> None:
            order.append(event.type)

    await new_runner(recorders=[Beginning()]).run(VARIED)
    assert order[:2] == ["begin 4", "run.running"]


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

    async def test_more_of_it_than_one_page(
        self, memory: InMemoryStore, new_runner: NewRunner, act: Puppet
    ) -> None:
        store, onlooker = Between(memory), Onlooker()

        async def in_pages_of_two(real: Any, run_id: str, after: Position) -> Any:
            return await real(run_id, after, limit=2)

        store.rules["read_events"] = in_pages_of_two
        act.hold("one/local")
        runner = new_runner(store, recorders=[onlooker])
        running = asyncio.create_task(runner.run(workflow(step("one")), NAMED))
        await act.begins("one/local")
        for number in range(5):
            await runner.annotate(RUN_ID, {"number": number})
        act.let_go("one/local")
        await running
        assert onlooker.events == await memory.read_events(RUN_ID)

    async def test_after_a_lost_answer_and_an_annotation_each_is_told_once_and_as_it_was(
        self, sqlite: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        """The repeated answer holds the time of the annotation, not of the write."""
        store, onlooker = Between(sqlite), Onlooker()
        runner = new_runner(store, recorders=[onlooker])
        lost = False

        async def lose_one(real: Any, writes: Any) -> Any:
            nonlocal lost
            answer = await real(writes)
            if not lost and act.ended:
                lost = True
                await runner.annotate(RUN_ID, {"by": "the way"})
                raise tenure.StoreUnavailable("the answer is lost")
            return answer

        store.rules["update_runs"] = lose_one
        run = await runner.run(workflow(step("one"), step("two")), NAMED)
        assert (run.status, lost) == (RunStatus.SUCCESS, True)
        assert onlooker.events == await sqlite.read_events(RUN_ID)

    async def test_where_nobody_else_writes_the_journal_is_never_read(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        store = Between(memory)
        await new_runner(store, recorders=[Onlooker()], notifier=Inbox()).run(VARIED)
        assert store.count("read_events") == 0

    @pytest.mark.parametrize("error", [tenure.RunNotFound(RUN_ID), ConnectionError("reset")])
    async def test_a_journal_that_cannot_be_read_costs_only_what_others_wrote(
        self,
        memory: InMemoryStore,
        new_runner: NewRunner,
        act: Puppet,
        caplog: pytest.LogCaptureFixture,
        error: Exception,
    ) -> None:
        store, onlooker = Between(memory), Onlooker()

        async def fail(real: Any, *args: Any) -> Any:
            raise error

        store.rules["read_events"] = fail
        act.hold("one/local")
        runner = new_runner(store, recorders=[onlooker])
        running = asyncio.create_task(runner.run(workflow(step("one")), NAMED))
        await act.begins("one/local")
        await runner.annotate(RUN_ID, {"ticket": 4711})
        act.let_go("one/local")
        assert (await running).status is RunStatus.SUCCESS
        journal = await memory.read_events(RUN_ID)
        assert onlooker.events == [each for each in journal if each.type != "run.annotated"]
        assert [each for each in caplog.messages if "recorders miss some of it" in each]


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

    async def test_a_failure_is_told_all_the_same(self, new_runner: NewRunner, act: Puppet) -> None:
        act.results["one/local"] = BROKEN
        run = await new_runner(tracking=False).run(workflow(step("one")))
        assert (run.status, run.error and run.error.exit_code) == (RunStatus.FAILED, 3)

    async def test_submitting_is_refused(self, new_runner: NewRunner) -> None:
        with pytest.raises(ValueError, match="tracking=False"):
            await new_runner(tracking=False).submit(workflow(step("one")))

    async def test_it_warns_of_nothing(
        self, new_runner: NewRunner, caplog: pytest.LogCaptureFixture, warn_anew: None
    ) -> None:
        await new_runner(tracking=False).run(workflow(step("one")))
        assert not [each for each in caplog.messages if "not durable" in each]
