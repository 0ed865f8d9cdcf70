"""When a runner closes: what it waits for, what it leaves to the next, and what it never does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from examples.custom_store import DocumentStore, KeyValueService

import tenure
from tenure.model.status import DeliveryState, RunStatus
from tenure.runtime.options import CallbackSettings
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import embedded_run
from tests.notifiers.receiver import Receiver
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, Outage, step, workflow
from tests.runtime_relay.hooks import AT_ONCE, MUCH_LATER, hook, types

RUN_ID = "a-run-that-tells"
ONE = workflow(step("one"))
AT_ANY_PRICE = CallbackSettings(allow_private=True, timeout=3600, flush=3600)
NOT_AT_ALL = CallbackSettings(allow_private=True, timeout=3600, flush=0)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


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


def to(*targets: Any, run_id: str = RUN_ID) -> tenure.RunOptions:
    return tenure.RunOptions(run_id=run_id, callbacks=targets)


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
        assert types(receiver.received) == ["run.running", "run.success"]

    async def test_not_for_the_second(
        self, outbox: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        settings = CallbackSettings(allow_private=True, delay=3600, flush=3600)
        runner = new_runner(outbox, callbacks=settings)
        await runner.run(ONE, to(hook(receiver, "503", events=("run",))))
        await asyncio.wait_for(runner.close(), PATIENCE)
        assert await states(outbox) == [
            ("run.running", "waiting", 1),
            ("run.success", "waiting", 0),
        ]

    async def test_for_what_it_began_for_others(
        self, outbox: Any, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """Though it owes nothing: somebody must deliver what a dead process left, and there may be
        nobody but commands that live for a moment."""
        left = embedded_run("elsewhere", callbacks=(hook(receiver, "gate", name="left"),))
        await outbox.create_run(left)
        runner = new_runner(outbox, callbacks=AT_ANY_PRICE)
        await runner.open()
        await receiver.got(1)
        closing = asyncio.create_task(runner.close())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not closing.done()
        receiver.gate.set()
        await asyncio.wait_for(closing, PATIENCE)
        assert await states(outbox) == [("run.running", "delivered", 1)]

    async def test_a_runner_that_has_told_everything_asks_the_store_nothing(
        self, memory: InMemoryStore, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        store = Between(memory)
        settled = asyncio.Event()

        async def note(real: Any, *args: Any, **kwargs: Any) -> Any:
            answers = await real(*args, **kwargs)
            if not (await memory.list_deliveries(state=DeliveryState.WAITING)).items:
                settled.set()
            return answers

        store.rules["settle_and_claim"] = note
        runner = new_runner(store, callbacks=AT_ANY_PRICE)
        await runner.run(ONE, to(hook(receiver)))
        await asyncio.wait_for(settled.wait(), PATIENCE)
        await runner.close()
        assert store.count("list_deliveries") == 0

    async def test_a_runner_with_nothing_to_tell_does_not_ask_the_store(
        self, memory: InMemoryStore, new_runner: NewRunner
    ) -> None:
        store = Between(memory)
        runner = new_runner(store, callbacks=AT_ANY_PRICE)
        await runner.run(ONE)
        await asyncio.wait_for(runner.close(), PATIENCE)
        assert store.count("list_deliveries") == 0

    async def test_not_for_a_store_that_does_not_answer(
        self, memory: InMemoryStore, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        store = Between(memory)
        outage = Outage(store, "claim_deliveries", "list_deliveries")
        outage.on = True
        runner = new_runner(store, callbacks=CallbackSettings(allow_private=True, flush=0.05))
        run = await runner.run(ONE, to(hook(receiver)))
        await outage.refuses(2)
        await asyncio.wait_for(runner.close(), PATIENCE)
        assert (run.status, receiver.received) == (RunStatus.SUCCESS, [])


class TestWhatIsLeft:
    async def test_stays_in_the_outbox_and_the_next_runner_delivers_it(
        self, outbox: Any, clock: ManualClock, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        first = new_runner(outbox, callbacks=NOT_AT_ALL)
        await first.run(ONE, to(hook(receiver, "gate", events=("run",))))
        await receiver.got(1)
        await asyncio.wait_for(first.close(), PATIENCE)
        assert await states(outbox) == [
            ("run.running", "waiting", 1),
            ("run.success", "waiting", 0),
        ]
        (waiting,) = [each for each in (await outbox.list_deliveries()).items if each.attempts]
        assert waiting.last_error == "stopped while sending; the target may have got it"
        clock.advance(3600)
        receiver.gate.set()
        second = new_runner(outbox, callbacks=AT_ONCE)
        await second.open()
        await receiver.got(3)
        await second.close()
        assert types(receiver.received) == ["run.running", "run.running", "run.success"]
        assert len({each.headers["webhook-id"] for each in receiver.received}) == 2
        assert [state for _, state, _ in await states(outbox)] == ["delivered"] * 2

    async def test_is_given_up_when_no_process_lives_long_enough_for_the_receiver(
        self, outbox: Any, clock: ManualClock, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        settings = CallbackSettings(allow_private=True, timeout=3600, flush=0, attempts=3)
        left = embedded_run("elsewhere", callbacks=(hook(receiver, "hang"),))
        await outbox.create_run(left)
        for attempt in (1, 2, 3):
            runner = new_runner(outbox, callbacks=settings)
            await runner.open()
            await receiver.got(attempt)
            await runner.close()
            clock.advance(3600)
        assert await states(outbox) == [("run.running", "dead", 3)]

    async def test_a_retry_that_is_not_due_is_the_next_runners(
        self, outbox: Any, clock: ManualClock, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        first = new_runner(outbox, callbacks=MUCH_LATER)
        await first.run(ONE, to(hook(receiver, "turns?of=503,200", events=("run",))))
        await first.close()
        second = new_runner(outbox, callbacks=AT_ONCE)
        await second.open()
        await second.close()
        assert len(receiver.received) == 1, "it was not due"
        clock.advance(3600)
        third = new_runner(outbox, callbacks=AT_ONCE)
        await third.open()
        await receiver.got(3)
        await third.close()
        assert types(receiver.received) == ["run.running", "run.running", "run.success"]

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

    async def test_of_a_store_that_could_not_be_opened(
        self, receiver: Receiver, new_runner: NewRunner
    ) -> None:
        """One run was marked, its receiver is being told, and then the store fails."""
        real_store = DocumentStore(KeyValueService())
        for run_id in ("left-behind-1", "left-behind-2"):
            left = embedded_run(
                "elsewhere/1@shop", run_id=run_id, callbacks=(hook(receiver, "hang"),)
            )
            await real_store.create_run(left)
        store = Between(real_store)

        async def break_later(real: Any, run_id: str) -> Any:
            if store.count("get_run") > 1:
                await receiver.got(1)
                raise KeyError("a bug")
            return await real(run_id)

        store.rules["get_run"] = break_later
        before = asyncio.all_tasks()
        runner = new_runner(store, callbacks=NOT_AT_ALL, runner_id="shop")
        with pytest.raises(KeyError):
            await runner.open()
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


NOTHING_TO_SEND = """
import asyncio, sys, tenure
@tenure.action("greet")
async def greet() -> None: ...
async def main():
    async with tenure.Runner(sys.argv[1]) as runner:
        await runner.run(tenure.Workflow(name="w", steps=[tenure.Step(name="a", action="greet")]))
asyncio.run(main())
print(sorted({name.partition(".")[0] for name in sys.modules} & {"aiohttp", "ssl", "yarl"}))
"""


@pytest.mark.slow
def test_who_sends_nothing_never_loads_the_client(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTHING_TO_SEND, f"sqlite:///{tmp_path / 'runs.db'}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "aiohttp" not in done.stdout
    assert "yarl" not in done.stdout
