"""The application's own notifier: called by the same policy, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from examples.custom_store import DocumentStore, KeyValueService

import tenure
from tenure.model.snapshot import ErrorInfo
from tenure.model.status import RunStatus
from tenure.ports.store import EventLog
from tenure.runtime.callbacks import Callbacks
from tenure.stores.memory import InMemoryStore
from tenure.testing.factories import embedded_run
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import BROKEN, PATIENCE, Puppet, step, workflow

RUN_ID = "a-run-that-notifies"
NAMED = tenure.RunOptions(run_id=RUN_ID)
ONE = workflow(step("one"))
STATUSES = [
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
        await new_runner(any_store, notifier=notifier).run(broken, NAMED)
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
        run = await new_runner(any_store, notifier=notifier).run(ONE, NAMED)
        assert notifier.types == STATUSES
        last = notifier.payloads[-1]
        assert (last.run_status, last.version, last.timestamp) == (
            RunStatus.SUCCESS,
            run.version,
            run.finished_at,
        )

    async def test_queued_and_canceled_too(self, queueing: Any, new_runner: NewRunner) -> None:
        notifier = Notifier()
        runner = new_runner(queueing, notifier=notifier)
        await runner.submit(ONE, NAMED)
        await runner.cancel(RUN_ID)
        await runner.close()
        assert notifier.types == ["run.queued", "run.canceled"]

    async def test_interrupted_too(self, memory: InMemoryStore, new_runner: NewRunner) -> None:
        for store in (memory, DocumentStore(KeyValueService())):
            notifier = Notifier()
            runner = new_runner(store, notifier=notifier, runner_id="shop")
            await store.create_run(embedded_run("elsewhere/1@shop", run_id=RUN_ID, seconds=0))
            await runner.reconcile(reason="gone")
            await runner.close()
            assert notifier.types == ["run.interrupted"]

    async def test_a_run_may_have_one_of_its_own_whoever_changes_it(
        self, queueing: Any, new_runner: NewRunner
    ) -> None:
        usual, special = Notifier(), Notifier()
        runner = new_runner(queueing, notifier=usual)
        await runner.submit(ONE, tenure.RunOptions(run_id=RUN_ID, notifier=special))
        await runner.submit(ONE, tenure.RunOptions(run_id="another-run"))
        for run_id in (RUN_ID, "another-run"):
            await runner.cancel(run_id)
        await runner.close()
        assert {each.run_id for each in special.payloads} == {RUN_ID}
        assert {each.run_id for each in usual.payloads} == {"another-run"}
        assert special.types == usual.types == ["run.queued", "run.canceled"]

    async def test_a_run_that_is_refused_takes_over_nobody_elses(
        self, queueing: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        first, second = Notifier(), Notifier()
        runner = new_runner(queueing)
        act.hold("one/local")
        options = tenure.RunOptions(run_id=RUN_ID, notifier=first)
        running = asyncio.create_task(runner.run(ONE, options))
        await act.begins("one/local")
        for verb in (runner.run, runner.submit):
            with pytest.raises(tenure.RunExists):
                await verb(ONE, tenure.RunOptions(run_id=RUN_ID, notifier=second))
        act.let_go("one/local")
        await running
        assert (first.types, second.types) == (STATUSES, [])

    async def test_without_tracking_nothing(self, new_runner: NewRunner) -> None:
        notifier = Notifier()
        runner = new_runner(notifier=notifier, tracking=False)
        await runner.run(ONE, tenure.RunOptions(notifier=notifier))
        await runner.close()
        assert notifier.types == []


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
        await runner.run(ONE, NAMED)
        await notifier.hears(12)
        await runner.close()
        assert notifier.types == [each for each in STATUSES for _ in range(2)]
        assert (await any_store.get_run(RUN_ID)).callback_error is None

    async def test_what_is_given_up_is_in_record_and_journal(
        self, any_store: Any, new_runner: NewRunner
    ) -> None:
        async def fail(payload: tenure.CallbackPayload) -> None:
            if payload.type.startswith("run."):
                raise ConnectionError("the password is hunter2")

        notifier = Notifier(fail)
        runner = new_runner(any_store, notifier=notifier, callbacks=ONCE)
        run = await runner.run(ONE, NAMED)
        await runner.close()
        assert notifier.types == STATUSES
        after = await any_store.get_run(RUN_ID)
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
                for event in await any_store.read_events(RUN_ID)
                if event.type == "callback.failed" and event.data is not None
            ]
            assert said == ["run.running", "run.success"]

    async def test_after_the_last_attempt_it_is_given_up(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        async def fail(_: tenure.CallbackPayload) -> None:
            raise ConnectionError

        notifier = Notifier(fail)
        runner = new_runner(memory, notifier=notifier, callbacks=AT_ONCE)
        await runner.submit(ONE, NAMED)
        await notifier.hears(3)
        await runner.cancel(RUN_ID)
        await notifier.hears(6)
        run = await runner.get_run(RUN_ID)
        assert notifier.types == ["run.queued"] * 3 + ["run.canceled"] * 3
        assert run.callback_error is not None
        assert (run.callback_error.event, run.callback_error.attempts) == ("run.queued", 3)

    async def test_one_that_waited_for_something_cancelled_is_called_again(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        """``CancelledError`` from within is a failure like any other."""
        attempts = iter(range(100))

        async def cancelled_once(_: tenure.CallbackPayload) -> None:
            if next(attempts) == 0:
                raise asyncio.CancelledError

        notifier = Notifier(cancelled_once)
        runner = new_runner(memory, notifier=notifier, callbacks=AT_ONCE)
        await runner.run(ONE, NAMED)
        await notifier.hears(7)
        assert notifier.types == ["run.running", *STATUSES]

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
            assert (await runner.run(ONE, NAMED)).status is RunStatus.SUCCESS
            await runner.close()
        (granted,) = patience
        assert 4.0 < granted <= 5.0
        run = await queueing.get_run(RUN_ID)
        assert run.callback_error is not None
        assert run.callback_error.error == (
            "the process ended before it was delivered, with 5 more behind it"
        )

    async def test_one_that_hangs_is_given_up_by_time(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        settings = tenure.CallbackSettings(timeout=0.01, attempts=1, flush=PATIENCE)
        notifier = Notifier(hang)
        runner = new_runner(memory, notifier=notifier, callbacks=settings)
        await runner.run(ONE, NAMED)
        await runner.close()
        assert notifier.types == STATUSES
        run = await memory.get_run(RUN_ID)
        assert run.callback_error is not None
        assert run.callback_error.error == "no answer in time"

    @pytest.mark.slow
    async def test_one_that_cannot_be_stopped_does_not_keep_the_runner_from_closing(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        let_go = asyncio.Event()

        async def deaf(_: tenure.CallbackPayload) -> None:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue

        settings = tenure.CallbackSettings(timeout=3600, flush=0)
        runner = new_runner(memory, notifier=Notifier(deaf), callbacks=settings)
        await runner.submit(ONE, NAMED)
        async with asyncio.timeout(PATIENCE):
            await runner.close()
        let_go.set()

    async def test_one_runs_notifier_holds_up_no_other_runs(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        """However many hang, the next one is called at once."""
        runner = new_runner(memory, callbacks=tenure.CallbackSettings(timeout=3600, flush=0))
        for number in range(50):
            stuck = tenure.RunOptions(run_id=f"stuck-{number:04}", notifier=Notifier(hang))
            await runner.submit(ONE, stuck)
        healthy = Notifier()
        await runner.run(ONE, tenure.RunOptions(run_id=RUN_ID, notifier=healthy))
        assert healthy.types == STATUSES
