"""Leases kept from a thread beside the event loop that drives the runs: what that loop may do to
them, and what may happen to the thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tenure.model.leases import Lease, Renewal
from tenure.ports.leases import LeaseKeeping
from tenure.runtime.group_commit import InTouch, StoreContact
from tenure.runtime.lease_timing import Timing
from tenure.runtime.leases import HeldLease, LeaseRenewer
from tenure.runtime.stop import NOT_RENEWED
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import cancel, embedded_run
from tests.runtime.puppets import PATIENCE

pytestmark = pytest.mark.slow

QUICK = Timing(lease_duration=60, renew_interval=0.2, control_interval=0.02)
SHORT = Timing(lease_duration=3, renew_interval=0.1, control_interval=0.02, margin=2.7)
"""Trusted for 0.3 s."""


class Killed(BaseException):
    """What no thread survives."""


class Watched:
    """What the keeper asks, and from where; the test may wait for it without an event loop."""

    def __init__(self, real: LeaseKeeping) -> None:
        self._real = real
        self._heard = threading.Condition()
        self.renewals = 0
        self.looks = 0
        self.threads: set[str] = set()
        self.before_renewal: Callable[[], None] = lambda: None
        self.hangs = threading.Event()
        """Renewals are made and not answered."""
        self.deaf = False
        """To being cancelled, too."""

    async def renew_leases(self, leases: Any, seconds: float) -> list[Renewal]:
        self.before_renewal()
        answer = await self._real.renew_leases(leases, seconds)
        if self.hangs.is_set():
            with suppress(*([asyncio.CancelledError] if self.deaf else [])):
                await asyncio.Event().wait()
        self._note(renewals=1)
        return answer

    async def list_runs(self, *args: Any, **kwargs: Any) -> Any:
        page = await self._real.list_runs(*args, **kwargs)
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

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(0.005)


class Store:
    """SQLite, with a keeper's line that is watched."""

    durable = True

    def __init__(self, real: SQLiteStore) -> None:
        self.real = real
        self.line = Watched(real)
        self.opened = self.closed = 0
        self.cannot_open: Exception | None = None

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


class Windows:
    def __init__(self) -> None:
        self.said: list[str] = []

    def trust(self, run_id: str, until: float, margin: float) -> None:
        self.said.append("trust")

    def forget(self, run_id: str) -> None:
        self.said.append("forget")


class Kept:
    def __init__(self, store: Store, timing: Timing) -> None:
        self.store = store
        self.line = store.line
        self.windows = Windows()
        self.contact = StoreContact(timing.renew_interval)
        self.keeper = LeaseRenewer(store, "me", timing, InTouch(self.contact), self.windows)
        self.canceled: list[str] = []
        self.lost: list[str] = []

    async def hold(self, run_id: str = "a-run-to-keep") -> HeldLease:
        sent_at = asyncio.get_running_loop().time()
        receipt = await self.store.real.create_run(embedded_run("me", run_id=run_id))
        assert receipt.lease_expires_at is not None
        lease = Lease(run_id=run_id, owner_id="me", fence=1, expires_at=receipt.lease_expires_at)

        def canceled() -> None:
            self.canceled.append(threading.current_thread().name)

        return self.keeper.hold(run_id, lease, sent_at, canceled, self.lost.append)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await SQLiteStore.open(tmp_path / "runs.db") as real:
        yield Store(real)


@pytest.fixture
async def new_keeper(store: Store) -> AsyncIterator[Callable[[Timing], Kept]]:
    made: list[Kept] = []

    def make(timing: Timing = QUICK) -> Kept:
        made.append(Kept(store, timing))
        return made[-1]

    yield make
    for kept in made:
        await kept.keeper.close()
    assert not keeper_threads()


NewKeeper = Callable[..., Kept]


def keeper_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "tenure-keeper"]


async def test_that_the_store_did_not_answer_is_heard_where_the_runs_are_driven(
    new_keeper: NewKeeper,
) -> None:
    """There it is decided whether leases of others may be taken."""
    kept = new_keeper()
    kept.line.hangs.set()
    await kept.hold()
    began = kept.contact.since
    await kept.line.until(lambda: kept.contact.since > began)
    kept.line.hangs.clear()


class TestABusyLoop:
    async def test_renewals_do_not_wait_for_it(self, new_keeper: NewKeeper) -> None:
        kept = new_keeper()
        await kept.hold()
        await kept.line.until(lambda: kept.line.looks > 0)
        seen = kept.line.renewals
        kept.line.block_until(lambda: kept.line.renewals > seen)
        assert kept.line.threads == {"tenure-keeper"}
        assert not kept.lost

    async def test_it_hears_of_a_cancel_when_it_comes_round(self, new_keeper: NewKeeper) -> None:
        """And once, in its own thread."""
        kept = new_keeper()
        await kept.hold()
        run = await kept.store.real.get_run("a-run-to-keep")
        await kept.store.real.update_run(cancel(run))
        await kept.line.until(lambda: bool(kept.canceled))
        seen = kept.line.looks
        await kept.line.until(lambda: kept.line.looks > seen + 3)
        assert kept.canceled == [threading.current_thread().name]

    async def test_a_run_that_ended_while_it_was_renewed_is_trusted_no_more(
        self, new_keeper: NewKeeper
    ) -> None:
        """The last word to whoever ends tasks is that the run is over."""
        kept = new_keeper()
        holding = await kept.hold()
        renewing, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            renewing.set()
            go_on.wait(PATIENCE)

        kept.line.before_renewal = wait
        await kept.line.until(renewing.is_set)
        kept.keeper.drop(holding)
        go_on.set()
        await kept.line.until(lambda: kept.line.renewals > 0)
        await kept.keeper.close()
        assert kept.windows.said == ["trust", "forget"]


class TestAHungLoop:
    async def test_is_not_kept_for_until_it_moves(
        self, new_keeper: NewKeeper, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept = new_keeper()
        await kept.hold()
        await kept.line.until(lambda: kept.line.renewals > 0)
        seen, looks = kept.line.renewals, kept.line.looks
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
            kept.line.block_until(lambda: kept.line.looks > looks + 50)  # five intervals
        assert kept.line.renewals <= seen + 2, "what it had answered for before"
        (said,) = [record.getMessage() for record in caplog.records]
        assert "the event loop of this process has been held up" in said
        hung = kept.line.renewals
        await kept.line.until(lambda: kept.line.renewals > hung)
        assert not kept.lost

    async def test_past_its_trust_gives_the_run_up_and_renews_it_no_more(
        self, new_keeper: NewKeeper
    ) -> None:
        kept = new_keeper(SHORT)
        holding = await kept.hold()
        await kept.line.until(lambda: kept.line.looks > 0)
        time = asyncio.get_running_loop().time
        kept.line.block_until(lambda: time() > holding.trusted_until)
        seen = kept.line.renewals
        await kept.line.until(lambda: bool(kept.lost))
        looks = kept.line.looks
        await kept.line.until(lambda: kept.line.looks > looks + 10)
        assert kept.lost == [NOT_RENEWED]
        assert kept.line.renewals == seen


class TestTheThread:
    async def test_is_not_begun_for_what_is_over_before_the_first_look(
        self, new_keeper: NewKeeper
    ) -> None:
        kept = new_keeper()
        kept.keeper.drop(await kept.hold())
        await kept.line.until(lambda: kept.keeper._holdings._resting)
        assert kept.store.opened == 0
        await kept.hold("another-run-1")
        await kept.line.until(lambda: kept.line.looks > 0)
        assert kept.store.opened == 1

    async def test_sleeps_while_nothing_is_held(self, new_keeper: NewKeeper) -> None:
        kept = new_keeper()
        holding = await kept.hold()
        await kept.line.until(lambda: kept.line.looks > 0)
        kept.keeper.drop(holding)
        await kept.line.until(lambda: kept.keeper._holdings._resting)
        looks = kept.line.looks
        await kept.hold("another-run-1")
        await kept.line.until(lambda: kept.line.looks > looks)
        assert kept.store.opened == 1

    async def test_that_was_killed_is_replaced(
        self, new_keeper: NewKeeper, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept = new_keeper()

        def die() -> None:
            kept.line.before_renewal = lambda: None
            raise Killed

        kept.line.before_renewal = die
        await kept.hold()
        await kept.line.until(lambda: kept.line.renewals > 1)
        assert (kept.store.opened, kept.store.closed) == (2, 1)
        assert "the thread that keeps leases has ended" in caplog.text
        assert not kept.lost

    async def test_that_cannot_begin_costs_the_run_in_time(self, new_keeper: NewKeeper) -> None:
        kept = new_keeper(SHORT)
        kept.store.cannot_open = OSError("no line")
        await kept.hold()
        await kept.line.until(lambda: bool(kept.lost))
        assert kept.lost == [NOT_RENEWED]
        assert kept.store.opened > 1, "it was tried again"

    async def test_a_system_without_threads_is_asked_again(
        self, new_keeper: NewKeeper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept, real, refused = new_keeper(), threading.Thread.start, threading.Event()

        def start(thread: threading.Thread) -> None:
            if thread.name == "tenure-keeper" and not refused.is_set():
                refused.set()
                raise RuntimeError("can't start new thread")
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        await kept.hold()
        await kept.line.until(lambda: kept.line.renewals > 0)
        assert refused.is_set()

    async def test_closing_does_not_wait_for_an_answer(self, new_keeper: NewKeeper) -> None:
        """And nobody asks the store for anything after it."""
        kept = new_keeper()
        for number in range(50):
            await kept.hold(f"run-to-keep-{number}")
        kept.line.hangs.set()
        called = threading.Event()
        kept.line.before_renewal = called.set
        await kept.line.until(called.is_set)
        async with asyncio.timeout(PATIENCE):
            await kept.keeper.close()
        assert kept.store.closed == 1
        assert not keeper_threads()

    async def test_ends_also_if_the_store_forgets_that_it_was_told_to(
        self, new_keeper: NewKeeper
    ) -> None:
        """As a client may, whose answer came in the very moment of the cancellation."""
        kept = new_keeper()
        await kept.hold()
        kept.line.deaf = True
        called = threading.Event()
        kept.line.before_renewal = called.set
        kept.line.hangs.set()
        await kept.line.until(called.is_set)
        async with asyncio.timeout(PATIENCE):
            await kept.keeper.close()
        assert kept.store.closed == 1

    def test_ends_with_the_loop_it_keeps_for(self, tmp_path: Path) -> None:
        """Whoever forgets to close leaves nothing behind either."""

        async def forget() -> None:
            store = Store(await SQLiteStore.open(tmp_path / "runs.db"))
            kept = Kept(store, QUICK)
            await kept.hold()
            await store.line.until(lambda: store.line.looks > 0)
            opened.append(store)

        opened: list[Store] = []
        asyncio.run(forget())
        for thread in threading.enumerate():
            if thread.name == "tenure-keeper":
                thread.join(PATIENCE)
        assert not keeper_threads()
        asyncio.run(opened.pop().real.close())
