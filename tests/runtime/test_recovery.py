"""Runs whose owner is gone are found, counted and marked interrupted; no others are."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from examples.custom_store import DocumentStore, KeyValueService
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure.bootstrap import open_store
from tenure.model.errors import StoreUnavailable
from tenure.model.leases import ClaimRequest
from tenure.model.query import Ownership, RunFilter, ownerships
from tenure.model.snapshot import RunSummary
from tenure.model.status import Recovery, RunStatus
from tenure.ports.callbacks import Outbox
from tenure.ports.leases import Presence, WorkerInfo
from tenure.runtime.explain import ClockSample, offset, present_workers
from tenure.runtime.owners import UNFINISHED, doubt_about, owned_runs, unattended
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.system import new_owner_id
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.run_states import waiting
from tenure.testing.factories import (
    CHATTY,
    HOOK,
    cancel,
    embedded_run,
    new_run,
    start_step,
)
from tenure.testing.faults import FaultyStore
from tests.runtime.conftest import QUICK, NewRunner
from tests.runtime.puppets import PATIENCE, Between, Puppet, step, until, workflow
from tests.runtime.victim import victim

RUN_ID = "a-run-left-behind"
SILENT = tenure.CallbackSettings(flush=0)
LIVE = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})


async def abandoned(store: Any, owner_id: str, **fields: Any) -> tenure.RunSnapshot:
    """A run in the middle of its first step, of an owner that will not come back."""
    new = embedded_run(owner_id, **fields)
    await store.create_run(new)
    run = await store.get_run(new.snapshot.run_id)
    await store.update_run(start_step(run, 0, ("web1",)))
    return await store.get_run(run.run_id)  # type: ignore[no-any-return]


async def events(store: Any, run_id: str) -> list[str]:
    return [event.type for event in await store.read_events(run_id)]


@pytest.mark.slow
class TestKilledProcess:
    @pytest.mark.parametrize("scheme", ["sqlite", "file"])
    async def test_the_next_to_start_marks_its_run_at_once(
        self, scheme: str, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        """kill -9 in the middle of a task: nothing is waited for, and nothing is left open."""
        url = {"sqlite": f"sqlite:///{tmp_path / 'runs.db'}", "file": f"file://{tmp_path / 'runs'}"}
        with victim(url[scheme], RUN_ID) as process:
            process.kill()
            process.wait()
            runner = new_runner(url[scheme], callbacks=SILENT)
            await runner.open()
            run = await runner.get_run(RUN_ID)
        assert run.status is RunStatus.INTERRUPTED
        assert run.interrupted_reason == "the process that ran it is gone"
        assert run.error is not None
        assert run.finished_at is not None
        assert [each.status for each in run.steps] == ["success", "interrupted", "interrupted"]
        assert run.steps[1].hosts["local"].status == "interrupted"
        assert run.steps[1].hosts["local"].started_at is not None
        assert run.steps[2].hosts["local"].started_at is None
        async with open_store(url[scheme]) as store:
            assert (await events(store, RUN_ID)).count("run.interrupted") == 1
            if scheme == "sqlite":
                assert isinstance(store, Outbox)
                told = (await store.list_deliveries(run_id=RUN_ID)).items
                runs = [each.event.type for each in told if each.event.kind == "run"]
                assert runs == ["run.interrupted", "run.running", "run.queued"]

    @pytest.mark.parametrize("scheme", ["sqlite", "file"])
    async def test_a_process_that_lives_is_never_hit(
        self, scheme: str, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        url = {"sqlite": f"sqlite:///{tmp_path / 'runs.db'}", "file": f"file://{tmp_path / 'runs'}"}
        with victim(url[scheme], RUN_ID) as process:
            runner = new_runner(url[scheme], callbacks=SILENT)
            assert await runner.reconcile() == 0
            run = await runner.get_run(RUN_ID)
            assert (run.status, run.owner_lost) == (RunStatus.RUNNING, False)
            assert process.poll() is None

    async def test_a_cancel_finds_it_dead_and_ends_it_as_canceled(
        self, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        url = f"sqlite:///{tmp_path / 'runs.db'}"
        runner = new_runner(url, callbacks=SILENT)
        await runner.open()
        with victim(url, RUN_ID) as process:
            process.kill()
            process.wait()
            run = await runner.cancel(RUN_ID, reason="too late")
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "too late")
        assert run.unconfirmed_hosts == ("local",), "nobody saw its task end"


@pytest.mark.slow
class TestWithLeases:
    async def test_who_is_proven_dead_is_not_waited_for(
        self, new_runner: NewRunner, dead_owner: str
    ) -> None:
        store = InMemoryStore()
        run = await abandoned(store, dead_owner)
        await new_runner(store).open()
        found = await store.get_run(run.run_id)
        assert found.status is RunStatus.INTERRUPTED
        assert found.fence == run.fence + 1, "claimed first, so that a waking owner is refused"
        assert found.owner_id is None
        assert found.steps[0].hosts["web1"].status == "interrupted"

    async def test_a_lease_that_merely_ran_out_is_left_alone_at_first(
        self, new_runner: NewRunner
    ) -> None:
        """Its owner, on another machine, may only be waiting for the store to come back."""
        clock = ManualClock()
        store = InMemoryStore(clock)
        run = await abandoned(store, "elsewhere", seconds=60)
        clock.advance(61)
        timing = tenure.Timing(lease_duration=60, renew_interval=0.2, control_interval=0.01)
        loop = asyncio.get_running_loop()
        started = loop.time()
        runner = new_runner(store, timing=timing, reconcile_interval=0.01)
        await runner.open()
        async with asyncio.timeout(PATIENCE):
            while not (await store.get_run(run.run_id)).ended:
                await asyncio.sleep(0.01)
        assert loop.time() - started >= 0.2
        found = await store.get_run(run.run_id)
        assert found.interrupted_reason == "its lease ended without a renewal"

    async def test_a_process_that_was_frozen_is_as_careful_as_one_that_has_just_started(
        self, new_runner: NewRunner
    ) -> None:
        """Perhaps all were, with the machine or the store: owners come back first."""
        clock, claimed = ManualClock(), asyncio.Event()
        store = Between(InMemoryStore(clock))

        async def notice(real: Any, request: ClaimRequest) -> Any:
            claimed.set()
            return await real(request)

        store.rules["claim_runs"] = notice
        timing = tenure.Timing(lease_duration=60, renew_interval=0.2, control_interval=0.01)
        await new_runner(store, timing=timing, reconcile_interval=0.01).open()
        await asyncio.wait_for(claimed.wait(), PATIENCE)  # now it takes what has expired
        run = await abandoned(store.real, "elsewhere", seconds=60)
        clock.advance(61)
        time.sleep(0.15)  # on purpose: freezes the process, as a suspended machine would
        loop = asyncio.get_running_loop()
        awake = loop.time()
        async with asyncio.timeout(PATIENCE):
            while not (await store.real.get_run(run.run_id)).ended:
                await asyncio.sleep(0.01)
        assert loop.time() - awake >= 0.2

    async def test_after_an_error_of_a_driver_the_wait_begins_anew(
        self, new_runner: NewRunner
    ) -> None:
        clock, failed_at = ManualClock(), list[float]()
        store = Between(InMemoryStore(clock))
        run = await abandoned(store.real, "elsewhere", seconds=60)
        clock.advance(61)
        time_of = asyncio.get_running_loop().time

        async def fail_for_a_while(real: Any, request: ClaimRequest) -> Any:
            if len(failed_at) < 30:
                failed_at.append(time_of())
                raise KeyError("the driver's own")
            return await real(request)

        timing = tenure.Timing(lease_duration=60, renew_interval=0.25, control_interval=0.01)
        await new_runner(store, timing=timing, reconcile_interval=0.02).open()
        store.rules["claim_runs"] = fail_for_a_while
        async with asyncio.timeout(PATIENCE):
            while not (await store.real.get_run(run.run_id)).ended:
                await asyncio.sleep(0.01)
        assert time_of() - failed_at[-1] >= 0.25

    async def test_a_claim_that_is_sent_again_takes_no_expired_lease(
        self, new_runner: NewRunner, dead_owner: str
    ) -> None:
        clock = ManualClock()
        store = Between(InMemoryStore(clock))
        runner = new_runner(store, reconcile_interval=1000)
        await runner.open()
        expired = await abandoned(store.real, "elsewhere", seconds=60)
        dead = await abandoned(store.real, dead_owner, seconds=3600)
        clock.advance(61)
        store.fails("claim_runs", StoreUnavailable("down"))
        asked = store.count("claim_runs")
        assert await runner.reconcile() == 1
        requests = [args[0] for name, args in store.calls if name == "claim_runs"][asked:]
        assert [each.expired for each in requests] == [True, False]
        assert len({each.claim_id for each in requests}) == 1
        assert (await store.real.get_run(expired.run_id)).status is RunStatus.RUNNING
        assert (await store.real.get_run(dead.run_id)).status is RunStatus.INTERRUPTED

    async def test_what_is_not_abandoned_is_untouched(
        self, new_runner: NewRunner, dead_owner: str, act: Puppet
    ) -> None:
        store = InMemoryStore()
        queued = new_run(recovery=Recovery.INTERRUPT)
        await store.create_run(queued)
        resuming = await abandoned(store, dead_owner, recovery=Recovery.RESUME)
        held = await abandoned(store, "elsewhere")
        runner = new_runner(store)
        running = await act.holding(runner.run(workflow(step("one"))), "one/local")
        assert await runner.reconcile() == 0
        for run_id in (queued.snapshot.run_id, resuming.run_id, held.run_id):
            assert (await store.get_run(run_id)).status in LIVE
        act.let_go("one/local")
        assert (await running).status is RunStatus.SUCCESS

    async def test_a_cancel_request_is_granted_rather_than_interrupted(
        self, new_runner: NewRunner, dead_owner: str
    ) -> None:
        store = InMemoryStore()
        run = await abandoned(store, dead_owner)
        await store.update_run(cancel(run, reason="stop it"))
        runner = new_runner(store)
        await runner.open()
        found = await runner.get_run(run.run_id)
        assert (found.status, found.message) == (RunStatus.CANCELED, "stop it")
        assert found.interrupted_reason is None

    async def test_two_at_once_end_each_run_once(
        self, runner: tenure.Runner, dead_owner: str
    ) -> None:
        store = InMemoryStore()
        runs = [await abandoned(store, dead_owner, callbacks=(HOOK, CHATTY)) for _ in range(150)]
        sessions = [runner._parts._new_session(store) for _ in range(2)]
        ended = await asyncio.gather(*(each.reconciler.reconcile("gone") for each in sessions))
        assert sorted(chain(*(each.interrupted for each in ended))) == sorted(
            run.run_id for run in runs
        )
        for run in runs:
            assert (await events(store, run.run_id)).count("run.interrupted") == 1
            told = (await store.list_deliveries(run_id=run.run_id)).items
            ends = [each for each in told if each.event.type == "run.interrupted"]
            assert sorted(each.target.name for each in ends) == ["chatty", "hook"]

    @pytest.mark.parametrize("seed", range(3))
    async def test_on_a_bad_day_every_run_is_ended_once(
        self, new_runner: NewRunner, dead_owner: str, seed: int
    ) -> None:
        store = InMemoryStore()
        runs = [await abandoned(store, dead_owner) for _ in range(30)]
        faulty: Any = FaultyStore(store, seed=seed, rate=0.30)
        await new_runner(faulty).open()
        assert faulty.injected
        for run in runs:
            assert (await events(store, run.run_id)).count("run.interrupted") == 1

    async def test_an_owner_that_wakes_up_is_refused(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        """Frozen past its lease, it finds its run ended and does nothing more."""
        clock = ManualClock()
        store = InMemoryStore(clock)
        runner = new_runner(store, reconcile_interval=1000)
        options = tenure.RunOptions(run_id=RUN_ID)
        running = await act.holding(
            runner.run(workflow(step("one"), step("two")), options), "one/local"
        )
        clock.advance(61)
        assert await new_runner(store).reconcile(reason="it was silent") == 1
        act.let_go("one/local")
        with pytest.raises(tenure.LeaseLost):
            await running
        assert act.begun == ["one/local"]
        run = await store.get_run(RUN_ID)
        assert (run.status, run.interrupted_reason) == (RunStatus.INTERRUPTED, "it was silent")


@pytest.mark.slow
class TestAmongManyQueued:
    @pytest.mark.parametrize("lists_owners", [True, False])
    async def test_runs_that_merely_wait_for_a_worker_are_not_read(
        self, new_runner: NewRunner, dead_owner: str, lists_owners: bool
    ) -> None:
        """Reconciling costs what is held and what wants approval, not what is queued. Of a store
        that says who has runs, not even those that are held are read."""
        store = Between(InMemoryStore())
        if not lists_owners:
            del store.list_owners
        for _ in range(5000):
            await store.real.create_run(new_run(steps=()))
        dead, late = await left_behind(store.real, dead_owner)
        read: list[str] = []

        async def note(real: Any, *args: Any, **kwargs: Any) -> Any:
            page = await real(*args, **kwargs)
            read.extend(run.run_id for run in page.items)
            return page

        store.rules["list_runs"] = note
        assert await new_runner(store, reconcile_interval=1000).reconcile() == 0, "at its start"
        held = [] if lists_owners else [dead.run_id]
        assert sorted(set(read)) == sorted([*held, late.run_id])
        assert (await store.real.get_run(dead.run_id)).status is RunStatus.INTERRUPTED
        assert (await store.real.get_run(late.run_id)).status is RunStatus.CANCELED


async def left_behind(store: Any, owner_id: str) -> tuple[tenure.RunSnapshot, tenure.RunSnapshot]:
    """One whose owner is gone, one that nobody approved in time."""
    return await abandoned(store, owner_id), await waiting(store, 0.0)


@pytest.mark.slow
class TestWithoutLeases:
    async def test_a_file_store_knows_by_its_locks(
        self, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        owner = FileStore(tmp_path)
        run = await abandoned(owner, "somebody")
        async with FileStore(tmp_path) as store:
            runner = new_runner(store)
            await runner.open()
            assert (await runner.get_run(run.run_id)).status is RunStatus.RUNNING
            assert await runner.reconcile() == 0
            await owner.close()
            assert await runner.reconcile(reason="let go") == 1
            found = await runner.get_run(run.run_id)
            assert (found.status, found.interrupted_reason) == (RunStatus.INTERRUPTED, "let go")
            assert await runner.reconcile() == 0

    async def test_a_plain_store_is_asked_for_runs_of_our_own_name_only(
        self, new_runner: NewRunner
    ) -> None:
        store = DocumentStore(KeyValueService())
        ours, other, nameless = [
            await abandoned(store, f"elsewhere/{new_owner_id(name)}")
            for name in ("billing", "shipping", None)
        ]
        await new_runner(store).open()
        assert (await store.get_run(ours.run_id)).status is RunStatus.RUNNING
        runner = new_runner(store, runner_id="billing")
        await runner.open()
        assert (await store.get_run(ours.run_id)).status is RunStatus.INTERRUPTED
        for run in (other, nameless):
            assert (await store.get_run(run.run_id)).status is RunStatus.RUNNING

    async def test_who_is_proven_dead_is_ended_on_request(
        self, new_runner: NewRunner, dead_owner: str
    ) -> None:
        store = DocumentStore(KeyValueService())
        run = await abandoned(store, dead_owner)
        queued = new_run(recovery=Recovery.INTERRUPT)
        await store.create_run(queued)
        resuming = await abandoned(store, dead_owner, recovery=Recovery.RESUME)
        assert await new_runner(store).reconcile() == 1
        assert (await store.get_run(resuming.run_id)).status is RunStatus.RUNNING
        assert (await store.get_run(run.run_id)).status is RunStatus.INTERRUPTED
        assert (await store.get_run(queued.snapshot.run_id)).status is RunStatus.QUEUED


@pytest.mark.slow
async def test_that_it_cannot_look_is_said_once_and_its_end_too(
    new_runner: NewRunner, caplog: pytest.LogCaptureFixture
) -> None:
    store = Between(InMemoryStore())
    runner = new_runner(store, reconcile_interval=0.01, timing=QUICK)
    await runner.open()
    store.fails("list_runs", *[KeyError("a bug")] * 3)
    await until(lambda: [each for each in caplog.messages if "again" in each.split("; ")[0]])
    assert [each for each in caplog.messages if "abandoned" in each] == [
        "cannot look for abandoned runs ('a bug'); it is tried again",
        "abandoned runs are looked for again",
    ]


OWNERS = ("alive", "gone", "ending", "elsewhere")
SEEN = {
    "alive": Presence.ALIVE,
    "gone": Presence.GONE,
    "ending": Presence.ENDING,
    "elsewhere": Presence.UNSEEN,
}
RUNS = st.lists(
    st.builds(
        RunSummary,
        run_id=st.just("run-of-somebody"),
        workflow_name=st.just("deploy"),
        status=st.sampled_from(sorted(UNFINISHED)),
        owner_id=st.sampled_from([None, *OWNERS]),
        owner_lost=st.booleans(),
        recovery=st.sampled_from(Recovery),
        cancel_requested_at=st.sampled_from([None, datetime(2026, 5, 1, tzinfo=UTC)]),
    )
)


@given(RUNS)
def test_counted_together_they_are_as_many_as_one_by_one(runs: list[RunSummary]) -> None:
    doubtful = sum(doubt_about(run, SEEN.__getitem__) is not None for run in runs)
    assert sum(unattended(ownerships(runs), SEEN.__getitem__)) == doubtful


def test_workers_come_for_those_that_resume_and_were_not_asked_to_stop() -> None:
    gone = Ownership(owner_id="gone", recovery=Recovery.RESUME, runs=5, lost=0, canceling=2)
    silent = Ownership(owner_id="elsewhere", recovery=Recovery.RESUME, runs=3, lost=2)
    never = Ownership(owner_id="gone", recovery=Recovery.INTERRUPT, runs=7, lost=0)
    assert unattended([gone, silent, never], SEEN.__getitem__) == (2 + 7, 3 + 2)


async def test_one_behind_a_thousand_that_wait_is_found() -> None:
    clock = ManualClock()
    store = InMemoryStore(clock)
    await store.create_run(embedded_run("elsewhere", run_id="a-lost-run"))
    clock.advance(7 * 86400.0)
    for number in range(1500):
        await store.create_run(new_run(run_id=f"waiting-{number:04}"))
    await store.create_run(embedded_run("alive"))
    where = RunFilter(statuses=UNFINISHED)
    assert sum(unattended(await owned_runs(store, where), SEEN.__getitem__)) == 1


PRESENT = {"here": Presence.ALIVE, "killed": Presence.GONE, "elsewhere": Presence.UNSEEN}


async def test_the_killed_are_missing_and_the_busy_are_busy() -> None:
    store = InMemoryStore()
    for owner_id in PRESENT:
        await store.heartbeat(WorkerInfo(owner_id=owner_id, concurrency=2, running=0), 60)
    for owner_id in ("here", "here", "killed"):
        await store.create_run(embedded_run(owner_id))
    there = await present_workers(store, PRESENT.__getitem__)
    assert there is not None
    assert {each.owner_id: each.running for each in there} == {"here": 2, "elsewhere": 0}


NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@given(
    ahead=st.floats(-3600, 3600),
    there=st.floats(0, 4),
    back=st.floats(0, 4),
)
def test_only_what_the_two_ways_differ_by_can_be_wrong(
    ahead: float, there: float, back: float
) -> None:
    told = NOON + timedelta(seconds=there + ahead)
    found = offset([ClockSample(NOON, told, there + back)])
    assert abs(found - ahead) <= abs(there - back) / 2 + 0.001
