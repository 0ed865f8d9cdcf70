"""Leases kept alive, trusted no longer than they last, and what operators ask for heard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

import tenure
from tenure.model.errors import StoreUnavailable
from tenure.model.leases import Lease, Purpose
from tenure.model.status import RunStatus
from tenure.runtime.group_commit import InTouch, StoreContact
from tenure.runtime.lease_timing import Timing
from tenure.runtime.leases import LeaseRenewer
from tenure.runtime.stop import NOT_RENEWED
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import cancel, embedded_run, end_run, lease_request, new_run
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, Outage, Puppet, step, workflow

pytestmark = pytest.mark.slow

RUN_ID = "a-run-to-keep"
NAMED = tenure.RunOptions(run_id=RUN_ID)
ONE = workflow(step("one"))
SHORT = Timing(lease_duration=3, renew_interval=0.1, control_interval=0.01, margin=2.7)
"""Trusted for 0.3 s; the rest is for a busy machine."""

NO_ANSWER = "the store does not answer for the leases of 1 run"
AGAIN = "leases are renewed as usual again"


async def _said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while words not in caplog.messages:
            await asyncio.sleep(0.01)


class TestTiming:
    def test_defaults_leave_room_for_missed_renewals(self) -> None:
        timing = Timing()
        assert timing.renew_interval * 2 < timing.trust < timing.lease_duration

    @pytest.mark.parametrize(
        ("fields", "rule"),
        [
            ({"renew_interval": 31}, "renew_interval ≤ lease_duration / 2 does not hold"),
            ({"lease_duration": 39}, "renew_interval is 20s, lease_duration is 39s"),
            ({"renew_interval": 0}, "renew_interval must be .* more than zero, and is 0"),
            ({"renew_interval": -1}, "renew_interval must be"),
            ({"lease_duration": 0}, "lease_duration must be"),
            ({"lease_duration": float("nan")}, "lease_duration must be"),
            ({"control_interval": 0}, "control_interval must be"),
            ({"control_interval": float("nan")}, "control_interval must be"),
            ({"margin": -1}, "margin must be .* zero or more"),
        ],
    )
    def test_what_cannot_work_is_refused(self, fields: dict[str, float], rule: str) -> None:
        with pytest.raises(tenure.InvalidOptions, match=rule):
            Timing(**fields)

    def test_everything_that_cannot_work_is_named_at_once(self) -> None:
        with pytest.raises(tenure.InvalidOptions) as refused:
            Timing(lease_duration=0, renew_interval=-1, control_interval=0, margin=-1)
        assert len(refused.value.problems) == 4

    @pytest.mark.parametrize("margin", [None, 0, 8, 1000])
    @pytest.mark.parametrize("renew", [0.001, 10, 30])
    def test_a_lease_is_never_trusted_longer_than_it_lasts(
        self, margin: float | None, renew: float
    ) -> None:
        timing = Timing(lease_duration=60, renew_interval=renew, margin=margin)
        assert timing.trust <= timing.lease_duration
        assert timing.trust > timing.renew_interval

    @pytest.mark.parametrize(("lease", "trusted"), [(60, 52), (4, 3)])
    def test_a_short_lease_is_trusted_for_most_of_its_time(
        self, lease: float, trusted: float
    ) -> None:
        """Or whoever is kept waiting for a moment would give up runs that nobody wanted."""
        assert Timing(lease_duration=lease, renew_interval=lease / 3).trust == trusted


class Calls:
    """What a keeper tells the holder of a run."""

    def __init__(self) -> None:
        self.canceled_times = 0
        self.lost_because: list[str] = []
        self.lost_at: list[float] = []
        self.news = asyncio.Event()

    def canceled(self) -> None:
        self.canceled_times += 1
        self.news.set()

    def lost(self, why: str) -> None:
        self.lost_because.append(why)
        self.lost_at.append(asyncio.get_running_loop().time())
        self.news.set()


class Kept:
    """A keeper on a real store, with runs of an owner called ``me``."""

    def __init__(self, timing: Timing = SHORT) -> None:
        self.store: Any = Between(InMemoryStore())
        self.keeper = LeaseRenewer(
            self.store, "me", timing, InTouch(StoreContact(timing.renew_interval))
        )
        self.calls = Calls()
        self.asked: list[float] = []
        self.store.rules["renew_leases"] = self._renewed
        self._frozen: asyncio.Event | None = None
        self._news = asyncio.Condition()

    def freeze(self) -> None:
        """From now on no call comes back."""
        self._frozen = asyncio.Event()
        self.store.rules["list_runs"] = self._stuck

    async def _stuck(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        if self._frozen is not None:
            await self._frozen.wait()
        return await real(*args, **kwargs)

    async def _renewed(self, real: Any, *args: Any) -> Any:
        async with self._news:
            self.asked.append(asyncio.get_running_loop().time())
            self._news.notify_all()
        return await self._stuck(real, *args)

    async def renews(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.asked) >= times)

    async def hold(self, run_id: str = RUN_ID, sent_at: float | None = None) -> float:
        """When its lease was asked for."""
        now = asyncio.get_running_loop().time() if sent_at is None else sent_at
        receipt = await self.store.real.create_run(embedded_run("me", run_id=run_id))
        lease = Lease(run_id=run_id, owner_id="me", fence=1, expires_at=receipt.lease_expires_at)
        self.holding = self.keeper.hold(run_id, lease, now, self.calls.canceled, self.calls.lost)
        return now

    async def told(self) -> None:
        await asyncio.wait_for(self.calls.news.wait(), PATIENCE)


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    kept = Kept()
    yield kept
    await kept.keeper.close()


class TestRenewal:
    async def test_all_runs_are_renewed_in_one_call(self, kept: Kept) -> None:
        for number in range(50):
            await kept.hold(f"run-to-keep-{number}")
        await kept.renews(3)
        sizes = [len(args[0]) for name, args in kept.store.calls if name == "renew_leases"]
        assert sizes == [50, 50, 50]
        assert not kept.calls.lost_because

    async def test_a_lease_that_is_somebody_elses_is_given_up(self, kept: Kept) -> None:
        await kept.hold()
        run = await kept.store.real.get_run(RUN_ID)
        await kept.store.real.update_run(end_run(run, RunStatus.FAILED))
        await kept.told()
        assert kept.calls.lost_because[0] == "another owner has it"

    async def test_what_was_dropped_is_asked_for_no_more(self, kept: Kept) -> None:
        await kept.hold()
        kept.keeper.drop(kept.holding)
        async with asyncio.timeout(PATIENCE):
            while not kept.keeper._holdings._resting:
                await asyncio.sleep(0.001)
        assert kept.store.calls == [], "nobody looks either"
        await kept.hold("another-run-1")
        await kept.renews(1)  # it begins again with the next run

    async def test_dropping_an_older_hold_leaves_the_newer_one(self, kept: Kept) -> None:
        """As when a run was given back and claimed again by the same process."""
        await kept.hold()
        older, now = kept.holding, asyncio.get_running_loop().time()
        assert older.lease is not None
        kept.keeper.hold(RUN_ID, older.lease, now, kept.calls.canceled, kept.calls.lost)
        kept.keeper.drop(older)
        await kept.renews(1)


class TestRequests:
    async def test_a_cancel_is_heard_before_the_run_has_begun(self) -> None:
        """Claimed and still queued: whoever has it may take a while to prepare."""
        kept = Kept(Timing(control_interval=0.01))
        await kept.store.real.create_run(new_run(run_id=RUN_ID))
        claimed = await kept.store.real.claim_run(RUN_ID, lease_request("me"))
        now = asyncio.get_running_loop().time()
        kept.keeper.hold(RUN_ID, claimed.lease, now, kept.calls.canceled, kept.calls.lost)
        await kept.store.real.update_run(cancel(claimed.snapshot))
        await kept.told()
        await kept.keeper.close()
        assert kept.calls.canceled_times
        assert not kept.asked, "not by a renewal"
        assert (await kept.store.real.get_run(RUN_ID)).status is RunStatus.QUEUED


class TestTrust:
    async def test_a_store_that_does_not_answer_costs_the_lease_before_it_ends(
        self, kept: Kept
    ) -> None:
        """The call hangs. It is not waited for beyond the moment the lease can be trusted."""
        kept.freeze()
        sent_at = await kept.hold()
        await kept.told()
        assert kept.calls.lost_because[0] == "its lease could not be renewed in time"
        assert SHORT.trust <= kept.calls.lost_at[0] - sent_at < SHORT.lease_duration

    async def test_nor_does_a_slow_pace_of_control_make_it_late(self) -> None:
        timing = Timing(lease_duration=3, renew_interval=0.1, control_interval=60, margin=2.7)
        kept = Kept(timing)
        kept.freeze()
        sent_at = await kept.hold()
        await kept.told()
        await kept.keeper.close()
        assert kept.asked[0] - sent_at < timing.trust
        assert kept.calls.lost_at[0] - sent_at < timing.lease_duration

    async def test_trust_counts_from_when_a_renewal_was_sent(self, kept: Kept) -> None:
        """An answer that takes long says how things were when it was asked for."""
        waited = asyncio.Event()

        async def slowly(real: Any, *args: Any) -> Any:
            kept.asked.append(asyncio.get_running_loop().time())
            answer = await real(*args)
            with suppress(TimeoutError):
                await asyncio.wait_for(waited.wait(), 0.05)
            return answer

        kept.store.rules["renew_leases"] = slowly
        await kept.hold()
        before = kept.holding.trusted_until
        async with asyncio.timeout(PATIENCE):
            while kept.holding.trusted_until == before:
                await asyncio.sleep(0.001)
        assert kept.holding.trusted_until == pytest.approx(kept.asked[0] + SHORT.trust, abs=0.01)

    async def test_what_was_not_renewed_is_asked_for_again_and_trusted_no_longer(
        self, kept: Kept
    ) -> None:
        """Its row was locked: it is nobody else's yet, but its lease ends when it would have."""
        counted = kept.store.rules["renew_leases"]

        async def busy(real: Any, *args: Any) -> Any:
            return [replace(answer, busy=True) for answer in await counted(real, *args)]

        kept.store.rules["renew_leases"] = busy
        sent_at = await kept.hold()
        await kept.told()
        assert kept.calls.lost_because == [NOT_RENEWED]
        assert kept.calls.lost_at[0] >= sent_at + SHORT.trust
        assert len(kept.asked) > 1

    async def test_any_error_is_survived_and_told_once_and_its_end_too(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept = Kept(Timing(renew_interval=0.2, control_interval=0.001))
        errors: list[Exception] = [StoreUnavailable("down"), KeyError("a bug"), OSError("pipe")]

        async def fail(real: Any, *args: Any) -> Any:
            if errors:
                raise errors.pop()
            return await real(*args)

        kept.store.rules["renew_leases"] = fail
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
            await kept.hold()
            await _said(caplog, AGAIN)
        await kept.keeper.close()
        assert not kept.calls.lost_because
        assert [one.split(" (")[0] for one in caplog.messages] == [NO_ANSWER, AGAIN]

    async def test_a_store_that_takes_every_other_renewal_is_told_of_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As a disk that is nearly full."""
        kept = Kept(Timing(renew_interval=0.1, control_interval=0.01))
        calls, over = count(), 7

        async def fail(real: Any, *args: Any) -> Any:
            number = next(calls)
            if number < over and number % 2 == 0:
                raise StoreUnavailable("no space left")
            return await real(*args)

        kept.store.rules["renew_leases"] = fail
        with caplog.at_level(logging.WARNING, "tenure.runtime"):
            await kept.hold()
            await _said(caplog, AGAIN)
        await kept.keeper.close()
        assert next(calls) >= over
        assert [one.split(" (")[0] for one in caplog.messages] == [NO_ANSWER, AGAIN]

    async def test_nobody_hears_of_a_store_that_was_asked_for_what_is_held_no_more(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept = Kept(Timing(control_interval=0.001))
        asked, failed = asyncio.Event(), asyncio.Event()

        async def fail(real: Any, *args: Any, **kwargs: Any) -> Any:
            asked.set()
            await failed.wait()
            raise StoreUnavailable("down")

        kept.store.rules["list_runs"] = fail
        await kept.hold()
        await asyncio.wait_for(asked.wait(), PATIENCE)
        kept.keeper.drop(kept.holding)
        failed.set()
        for _ in range(10):
            await asyncio.sleep(0)
        await kept.keeper.close()
        assert not caplog.messages


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
        act.hold("one/local")
        running = asyncio.create_task(new_runner(store, timing=timing).run(ONE, NAMED))
        await act.begins("one/local")
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
        async with asyncio.timeout(PATIENCE):
            while not store.count("renew_leases") or len(act.begun) < 20:
                await asyncio.sleep(0.01)
        act.let_go("one/local")
        await asyncio.gather(*running)
        sizes = [len(args[0]) for name, args in store.calls if name == "renew_leases"]
        assert max(sizes) == 20

    async def test_who_wants_a_run_that_is_there_already_does_not_take_its_lease_along(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        runner = new_runner(store, timing=Timing(lease_duration=60, renew_interval=0.02))
        act.hold("one/local")
        running = asyncio.create_task(runner.run(ONE, NAMED))
        await act.begins("one/local")
        with pytest.raises(tenure.RunExists):
            await runner.run(ONE, NAMED)
        seen = store.count("renew_leases")
        async with asyncio.timeout(PATIENCE):
            while store.count("renew_leases") < seen + 2:
                await asyncio.sleep(0.005)
        act.let_go("one/local")
        assert (await running).status is RunStatus.SUCCESS

    async def test_a_store_frozen_past_the_trust_window_stops_the_tasks_and_is_told_later(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = Between(InMemoryStore())
        outage = Outage(store)
        act.hold("one/a", "one/b")
        started = asyncio.get_running_loop().time()
        played = workflow(step("one"), step("two"), hosts=["a", "b"])
        running = asyncio.create_task(new_runner(store, timing=SHORT).run(played, NAMED))
        await act.begins("one/a", "one/b")
        outage.on = True
        async with asyncio.timeout(PATIENCE):
            while len(act.cancelled) < 2:
                await asyncio.sleep(0.01)
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
        act.hold("one/local")
        running = asyncio.create_task(new_runner(store, timing=timing).run(ONE, NAMED))
        await act.begins("one/local")
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
        act.hold("one/local")
        running = asyncio.create_task(runner.run(ONE, NAMED))
        await act.begins("one/local")
        if hint:
            await runner.cancel(RUN_ID, reason="enough")
        else:
            session = await runner._parts.session()
            await session.operators.cancel(RUN_ID, reason="enough")
        run = await asyncio.wait_for(running, PATIENCE)
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
        assert act.cancelled == ["one/local"]

    async def test_a_renewal_tells_of_a_cancel_too(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = InMemoryStore()
        timing = Timing(lease_duration=60, renew_interval=0.05, control_interval=1000)
        runner = new_runner(store, timing=timing)
        act.hold("one/local")
        running = asyncio.create_task(runner.run(ONE, NAMED))
        await act.begins("one/local")
        await (await runner._parts.session()).operators.cancel(RUN_ID)
        run = await asyncio.wait_for(running, PATIENCE)
        assert run.status is RunStatus.CANCELED
