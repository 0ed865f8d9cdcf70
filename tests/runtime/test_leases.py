"""Leases are kept alive, also from beside a busy event loop, and trusted no longer than they last.

``Keeper`` and ``Holding`` are imported where a lease is looked at that no run shows: until when it
is trusted, and what became of the thread that renews it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tenure
from tenure.model.errors import StoreUnavailable
from tenure.model.leases import Lease, Purpose
from tenure.model.status import RunStatus
from tenure.ports.leases import LeaseKeeping
from tenure.runtime.group_commit import InTouch, StoreContact
from tenure.runtime.lease_timing import Timing
from tenure.runtime.leases import HeldLease, LeaseRenewer
from tenure.runtime.stop import NOT_RENEWED
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import embedded_run, lease_request
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, Outage, Puppet, step, until, workflow

pytestmark = pytest.mark.slow

RUN_ID = "a-run-to-keep"
NAMED = tenure.RunOptions(run_id=RUN_ID)
ONE = workflow(step("one"))
QUICK = Timing(lease_duration=60, renew_interval=0.2, control_interval=0.02)
SHORT = Timing(lease_duration=3, renew_interval=0.1, control_interval=0.02, margin=2.7)
"""Trusted for 0.3 s; the rest is for a busy machine."""


class TestWholeRuns:
    async def test_a_long_task_keeps_its_lease(self, new_runner: NewRunner, act: Puppet) -> None:
        """By the store's clock it outlives its first lease many times; nobody can claim it."""
        clock = ManualClock()
        store, renewed = Between(InMemoryStore(clock)), asyncio.Event()

        async def notice(real: Any, *args: Any) -> Any:
            answer = await real(*args)
            renewed.set()
            return answer

        store.rules["renew_leases"] = notice
        timing = Timing(lease_duration=60, renew_interval=0.02, control_interval=0.01)
        running = await act.holding(new_runner(store, timing=timing).run(ONE, NAMED), "one/local")
        for _ in range(4):
            renewed.clear()
            await asyncio.wait_for(renewed.wait(), PATIENCE)
            clock.advance(50)
            assert not (await store.get_run(RUN_ID)).owner_lost
            assert await new_runner(store).reconcile() == 0
        act.let_go("one/local")
        done = await running
        assert (done.status, done.version) == (RunStatus.SUCCESS, 2)

    async def test_many_runs_cost_one_renewal_call(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        timing = Timing(lease_duration=60, renew_interval=0.05, control_interval=0.01)
        act.hold("one/local")
        runner = new_runner(store, timing=timing)
        running = [asyncio.create_task(runner.run(ONE)) for _ in range(20)]
        await until(lambda: store.count("renew_leases") and len(act.begun) == 20)
        act.let_go("one/local")
        await asyncio.gather(*running)
        sizes = [len(args[0]) for name, args in store.calls if name == "renew_leases"]
        assert max(sizes) == 20

    async def test_who_wants_a_run_that_is_there_already_does_not_take_its_lease_along(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        runner = new_runner(store, timing=Timing(lease_duration=60, renew_interval=0.02))
        running = await act.holding(runner.run(ONE, NAMED), "one/local")
        with pytest.raises(tenure.RunExists):
            await runner.run(ONE, NAMED)
        seen = store.count("renew_leases")
        await until(lambda: store.count("renew_leases") >= seen + 2)
        act.let_go("one/local")
        assert (await running).status is RunStatus.SUCCESS

    async def test_a_store_frozen_past_the_trust_window_stops_the_tasks_and_is_told_later(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        outage = Outage(store)
        started = asyncio.get_running_loop().time()
        played = workflow(step("one"), step("two"), hosts=["a", "b"])
        running = await act.holding(
            new_runner(store, timing=SHORT).run(played, NAMED), "one/a", "one/b"
        )
        outage.on = True
        await until(lambda: len(act.cancelled) >= 2)
        assert asyncio.get_running_loop().time() - started < SHORT.lease_duration
        assert (await store.real.get_run(RUN_ID)).status is RunStatus.RUNNING
        outage.on = False
        run = await running
        assert run.status is RunStatus.INTERRUPTED
        assert run.interrupted_reason == (
            "stopped by its owner: its lease could not be renewed in time"
        )
        assert run.error is not None
        assert run.error.kind == "lease"
        hosts = run.steps[0].hosts.values()
        assert {host.status for host in hosts} == {"interrupted"}
        assert [each.status for each in run.steps] == ["interrupted", "interrupted"]

    async def test_a_run_taken_away_is_noticed_with_the_next_renewal(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        clock = ManualClock()
        store = InMemoryStore(clock)
        timing = Timing(lease_duration=60, renew_interval=0.05, control_interval=0.01)
        running = await act.holding(new_runner(store, timing=timing).run(ONE, NAMED), "one/local")
        clock.advance(61)
        await store.claim_run(RUN_ID, lease_request("another"), Purpose.RECONCILE)
        with pytest.raises(tenure.LeaseLost):
            await asyncio.wait_for(running, PATIENCE)
        assert act.cancelled == ["one/local"]
        assert (await store.get_run(RUN_ID)).owner_id == "another"

    @pytest.mark.parametrize("hint", [True, False])
    async def test_a_cancel_is_heard_while_a_task_runs(
        self, any_store: Any, new_runner: NewRunner, act: Puppet, hint: bool
    ) -> None:
        """At once with a hint from this process, else with the next look at the store."""
        control = 1000.0 if hint else 0.01
        runner = new_runner(any_store, timing=Timing(control_interval=control))
        canceling = runner if hint else new_runner(any_store)
        running = await act.holding(runner.run(ONE, NAMED), "one/local")
        await canceling.cancel(RUN_ID, reason="enough")
        run = await asyncio.wait_for(running, PATIENCE)
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
        assert act.cancelled == ["one/local"]


class Killed(BaseException):
    """What no thread survives."""


class Line:
    """What the keeper asks of its store; the test may wait for it without an event loop."""

    def __init__(self, real: LeaseKeeping) -> None:
        self.real = real
        self.renew: Callable[[Any], Awaitable[Any]] = lambda answer: answer
        """What becomes of a renewal, which is awaited for its answer."""
        self.asked: list[float] = []
        self.renewals = self.looks = 0
        self.threads: set[str] = set()
        self._heard = threading.Condition()

    async def renew_leases(self, leases: Any, seconds: float) -> Any:
        self.asked.append(asyncio.get_running_loop().time())
        answer = await self.renew(self.real.renew_leases(leases, seconds))
        self._note(renewals=1)
        return answer

    async def list_runs(self, *args: Any, **kwargs: Any) -> Any:
        page = await self.real.list_runs(*args, **kwargs)
        self._note(looks=1)
        return page

    def _note(self, renewals: int = 0, looks: int = 0) -> None:
        with self._heard:
            self.renewals += renewals
            self.looks += looks
            self.threads.add(threading.current_thread().name)
            self._heard.notify_all()

    def block_until(self, holds: Callable[[], bool]) -> None:
        """Held up, as by a callback that does not come to its end."""
        with self._heard:
            assert self._heard.wait_for(holds, PATIENCE)


class Kept:
    """A keeper on SQLite whose line is watched, and what it tells the holder of a run. It is the
    supervisor, too, that is told until when a run is trusted."""

    durable = True

    def __init__(self, real: SQLiteStore) -> None:
        self.real = real
        self.line = Line(real)
        self.opened = self.closed = 0
        self.cannot_open: Exception | None = None
        self.windows: list[str] = []
        self.lost: list[str] = []
        self.lost_at: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[LeaseKeeping]:
        self.opened += 1
        if self.cannot_open is not None:
            raise self.cannot_open
        async with self.real.keeping():
            try:
                yield self.line
            finally:
                self.closed += 1

    def trust(self, run_id: str, until: float, margin: float) -> None:
        self.windows.append("trust")

    def forget(self, run_id: str) -> None:
        self.windows.append("forget")

    async def hold(self, timing: Timing = QUICK) -> HeldLease:
        store: Any = self
        self.keeper = LeaseRenewer(
            store, "me", timing, InTouch(StoreContact(timing.renew_interval)), self
        )
        sent_at = asyncio.get_running_loop().time()
        receipt = await self.real.create_run(embedded_run("me", run_id=RUN_ID))
        assert receipt.lease_expires_at is not None
        lease = Lease(run_id=RUN_ID, owner_id="me", fence=1, expires_at=receipt.lease_expires_at)
        return self.keeper.hold(RUN_ID, lease, sent_at, lambda: None, self._lose)

    def _lose(self, why: str) -> None:
        self.lost.append(why)
        self.lost_at.append(asyncio.get_running_loop().time())


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with await SQLiteStore.open(tmp_path / "runs.db") as real:
        kept = Kept(real)
        yield kept
        await kept.keeper.close()
    assert not keeper_threads()


def keeper_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tenure-keeper"]


class TestTrust:
    async def test_a_store_that_does_not_answer_costs_the_lease_before_it_ends(
        self, kept: Kept
    ) -> None:
        """The call hangs. It is not waited for beyond the moment the lease can be trusted."""

        async def hang(answer: Awaitable[Any]) -> None:
            await answer
            await asyncio.Event().wait()

        kept.line.renew = hang
        sent_at = (await kept.hold(SHORT)).trusted_until - SHORT.trust
        await until(lambda: kept.lost)
        assert kept.lost == [NOT_RENEWED]
        assert SHORT.trust <= kept.lost_at[0] - sent_at < SHORT.lease_duration

    async def test_it_counts_from_when_a_renewal_was_sent(self, kept: Kept) -> None:
        """An answer that takes long says how things were when it was asked for."""

        async def slowly(answer: Awaitable[Any]) -> Any:
            said = await answer
            await asyncio.sleep(0.05)
            return said

        kept.line.renew = slowly
        holding = await kept.hold(SHORT)
        before = holding.trusted_until
        await until(lambda: holding.trusted_until != before)
        assert holding.trusted_until == pytest.approx(kept.line.asked[0] + SHORT.trust, abs=0.01)

    async def test_what_was_not_renewed_is_asked_for_again_and_trusted_no_longer(
        self, kept: Kept
    ) -> None:
        """Its row was locked: it is no other owner's yet, but its lease ends when it would have."""

        async def busy(answer: Awaitable[Any]) -> Any:
            return [replace(each, busy=True) for each in await answer]

        kept.line.renew = busy
        ends = (await kept.hold(SHORT)).trusted_until
        await until(lambda: kept.lost)
        assert kept.lost == [NOT_RENEWED]
        assert kept.lost_at[0] >= ends
        assert len(kept.line.asked) > 1

    async def test_a_run_that_ended_while_it_was_renewed_is_trusted_no_more(
        self, kept: Kept
    ) -> None:
        """The last word to the supervisor, which ends tasks, is that the run is over."""
        renewing, go_on = threading.Event(), threading.Event()

        async def wait(answer: Awaitable[Any]) -> Any:
            renewing.set()
            go_on.wait(PATIENCE)
            return await answer

        kept.line.renew = wait
        holding = await kept.hold()
        await until(renewing.is_set)
        kept.keeper.drop(holding)
        go_on.set()
        await until(lambda: kept.line.renewals)
        await kept.keeper.close()
        assert kept.windows == ["trust", "forget"]

    async def test_any_error_is_survived_and_told_once_and_its_end_too(
        self, kept: Kept, caplog: pytest.LogCaptureFixture
    ) -> None:
        errors: list[Exception] = [StoreUnavailable("down"), KeyError("a bug"), OSError("pipe")]

        async def fail(answer: Awaitable[Any]) -> Any:
            said = await answer
            if errors:
                raise errors.pop()
            return said

        kept.line.renew = fail
        await kept.hold()
        await until(lambda: "leases are renewed as usual again" in caplog.messages)
        assert not kept.lost
        assert [one.split(" (")[0] for one in caplog.messages] == [
            "the store does not answer for the leases of 1 run",
            "leases are renewed as usual again",
        ]


class TestABusyLoop:
    async def test_renewals_do_not_wait_for_it(self, kept: Kept) -> None:
        await kept.hold()
        await until(lambda: kept.line.looks)
        seen = kept.line.renewals
        kept.line.block_until(lambda: kept.line.renewals > seen)
        assert kept.line.threads == {"tenure-keeper"}
        assert not kept.lost

    async def test_one_that_hangs_is_not_kept_for_until_it_moves(
        self, kept: Kept, caplog: pytest.LogCaptureFixture
    ) -> None:
        await kept.hold()
        await until(lambda: kept.line.renewals)
        seen, looks = kept.line.renewals, kept.line.looks
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
            kept.line.block_until(lambda: kept.line.looks > looks + 50)  # five intervals
        assert kept.line.renewals <= seen + 2, "what it had answered for before"
        (said,) = [record.getMessage() for record in caplog.records]
        assert "the event loop of this process has been held up" in said
        hung = kept.line.renewals
        await until(lambda: kept.line.renewals > hung)
        assert not kept.lost

    async def test_past_its_trust_gives_the_run_up_and_renews_it_no_more(self, kept: Kept) -> None:
        holding = await kept.hold(SHORT)
        await until(lambda: kept.line.looks)
        time = asyncio.get_running_loop().time
        kept.line.block_until(lambda: time() > holding.trusted_until)
        seen = kept.line.renewals
        await until(lambda: kept.lost)
        looks = kept.line.looks
        await until(lambda: kept.line.looks > looks + 10)
        assert kept.lost == [NOT_RENEWED]
        assert kept.line.renewals == seen


class TestTheThread:
    async def test_that_was_killed_is_replaced(
        self, kept: Kept, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def die(answer: Awaitable[Any]) -> Any:
            kept.line.renew = lambda answer: answer
            await answer
            raise Killed

        kept.line.renew = die
        await kept.hold()
        await until(lambda: kept.line.renewals > 1)
        assert (kept.opened, kept.closed) == (2, 1)
        assert "the thread that keeps leases has ended" in caplog.text
        assert not kept.lost

    async def test_that_cannot_begin_costs_the_run_in_time(self, kept: Kept) -> None:
        kept.cannot_open = OSError("no line")
        await kept.hold(SHORT)
        await until(lambda: kept.lost)
        assert kept.lost == [NOT_RENEWED]
        assert kept.opened > 1, "it was tried again"

    async def test_closing_does_not_wait_for_an_answer(self, kept: Kept) -> None:
        """And nothing is asked of the store after it."""
        called = threading.Event()

        async def hang(answer: Awaitable[Any]) -> None:
            await answer
            called.set()
            await asyncio.Event().wait()

        kept.line.renew = hang
        await kept.hold()
        await until(called.is_set)
        await asyncio.wait_for(kept.keeper.close(), PATIENCE)
        assert kept.closed == 1
        assert not keeper_threads()

    def test_ends_with_the_loop_it_keeps_for(self, tmp_path: Path) -> None:
        """What is not closed leaves nothing behind either."""

        async def forget() -> SQLiteStore:
            kept = Kept(await SQLiteStore.open(tmp_path / "runs.db"))
            await kept.hold()
            await until(lambda: kept.line.looks)
            return kept.real

        store = asyncio.run(forget())
        for thread in keeper_threads():
            thread.join(PATIENCE)
        assert not keeper_threads()
        asyncio.run(store.close())
