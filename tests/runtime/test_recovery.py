"""Runs whose owner is gone are marked interrupted; nobody else's are."""

from __future__ import annotations

import asyncio
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from examples.custom_store import DocumentStore, KeyValueService
from msgspec.structs import replace

import tenure
from tenure.bootstrap import open_store
from tenure.model.errors import StoreUnavailable
from tenure.model.leases import ClaimRequest
from tenure.model.query import RunFilter
from tenure.model.status import Recovery, RunStatus
from tenure.ports.callbacks import Outbox
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.system import new_owner_id
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.run_states import waiting
from tenure.testing.factories import (
    CHATTY,
    HOOK,
    annotate,
    cancel,
    embedded_run,
    new_run,
    start_step,
)
from tenure.testing.faults import FaultyStore
from tests.runtime.conftest import QUICK, NewRunner
from tests.runtime.puppets import PATIENCE, Between, Puppet, step, workflow
from tests.runtime.victim import victim

pytestmark = pytest.mark.slow

RUN_ID = "a-run-left-behind"
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
            runner = new_runner(url[scheme])
            await runner.open()
            run = await runner.get_run(RUN_ID)
        assert run.status is RunStatus.INTERRUPTED
        assert run.interrupted_reason == "the process that ran it is gone"
        assert run.error is not None
        assert run.finished_at is not None
        assert [each.status for each in run.steps] == ["interrupted", "interrupted"]
        assert run.steps[0].hosts["local"].status == "interrupted"
        assert run.steps[0].hosts["local"].started_at is not None
        assert run.steps[1].hosts["local"].started_at is None
        async with open_store(url[scheme]) as store:
            assert (await events(store, RUN_ID)).count("run.interrupted") == 1
            if scheme == "sqlite":
                assert isinstance(store, Outbox)
                told = (await store.list_deliveries(run_id=RUN_ID)).items
                assert [each.event.type for each in told] == ["run.interrupted", "run.running"]

    @pytest.mark.parametrize("scheme", ["sqlite", "file"])
    async def test_a_process_that_lives_is_never_hit(
        self, scheme: str, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        url = {"sqlite": f"sqlite:///{tmp_path / 'runs.db'}", "file": f"file://{tmp_path / 'runs'}"}
        with victim(url[scheme], RUN_ID) as process:
            runner = new_runner(url[scheme])
            assert await runner.reconcile() == 0
            run = await runner.get_run(RUN_ID)
            assert (run.status, run.owner_lost) == (RunStatus.RUNNING, False)
            assert process.poll() is None

    async def test_nor_if_its_lock_was_lost(self, tmp_path: Path, new_runner: NewRunner) -> None:
        """Somebody cleaned up the folder of a file store. What is seen to live is not abandoned."""
        url = f"file://{tmp_path / 'runs'}"
        with victim(url, RUN_ID) as process:
            for lock in (tmp_path / "runs").glob("*.live"):
                lock.unlink()
            runner = new_runner(url)
            assert await runner.reconcile() == 0
            run = await runner.get_run(RUN_ID)
            assert (run.status, run.owner_lost) == (RunStatus.RUNNING, True)
            process.kill()
            process.wait()
            assert await runner.reconcile() == 1

    async def test_a_cancel_finds_it_dead_and_ends_it_as_canceled(
        self, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        url = f"sqlite:///{tmp_path / 'runs.db'}"
        runner = new_runner(url)
        await runner.open()
        with victim(url, RUN_ID) as process:
            process.kill()
            process.wait()
            run = await runner.cancel(RUN_ID, reason="too late")
        assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "too late")
        assert run.unconfirmed_hosts == ("local",), "nobody saw its task end"

    async def test_without_leases_by_the_name_it_shares_with_us(
        self, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        """A file store without its locks stands for any store that knows no ownership."""
        directory = tmp_path / "runs"
        with victim(f"file://{directory}", RUN_ID, "billing") as process:
            async with FileStore(directory) as files:
                store = without_locks(files)
                stranger = new_runner(store, runner_id="shipping")
                await stranger.open()
                assert (await stranger.get_run(RUN_ID)).status is RunStatus.RUNNING
                early = new_runner(store, runner_id="billing")
                await early.open()
                assert (await early.get_run(RUN_ID)).status is RunStatus.RUNNING, "it is not gone"
                process.kill()
                process.wait()
                namesake = new_runner(store, runner_id="billing")
                await namesake.open()
                assert (await namesake.get_run(RUN_ID)).status is RunStatus.INTERRUPTED


def without_locks(store: FileStore) -> Any:
    bare = Between(store)
    del bare.is_live
    return bare


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

    async def test_after_a_store_error_the_wait_begins_anew(self, new_runner: NewRunner) -> None:
        clock = ManualClock()
        store = Between(InMemoryStore(clock))
        run = await abandoned(store.real, "elsewhere", seconds=60)
        clock.advance(61)
        loop = asyncio.get_running_loop()
        last_error = loop.time()

        async def fail_for_a_while(real: Any, request: ClaimRequest) -> Any:
            nonlocal last_error
            if loop.time() - opened < 0.6:
                last_error = loop.time()
                raise KeyError("no patience is wasted on this one")
            return await real(request)

        timing = tenure.Timing(lease_duration=60, renew_interval=0.25, control_interval=0.01)
        opened = loop.time()
        await new_runner(store, timing=timing, reconcile_interval=0.02).open()
        store.rules["claim_runs"] = fail_for_a_while
        async with asyncio.timeout(PATIENCE):
            while not (await store.real.get_run(run.run_id)).ended:
                await asyncio.sleep(0.01)
        assert last_error > opened
        assert loop.time() - last_error >= 0.25

    async def test_a_process_that_was_frozen_is_as_careful_as_one_that_has_just_started(
        self, new_runner: NewRunner
    ) -> None:
        """Perhaps everybody was, with the machine or the store: owners come back first."""
        clock = ManualClock()
        store, claimed = Between(InMemoryStore(clock)), asyncio.Event()

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
        requests: list[ClaimRequest] = []

        async def fail_once(real: Any, request: ClaimRequest) -> Any:
            requests.append(request)
            if len(requests) == 1:
                raise StoreUnavailable("down")
            return await real(request)

        store.rules["claim_runs"] = fail_once
        assert await runner.reconcile() == 1
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
        act.hold("one/local")
        running = asyncio.create_task(runner.run(workflow(step("one"))))
        await act.begins("one/local")
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

    async def test_a_cancel_does_not_wait_for_the_dead(
        self, new_runner: NewRunner, dead_owner: str
    ) -> None:
        store = InMemoryStore()
        runner = new_runner(store, reconcile_interval=1000)
        await runner.open()
        run = await abandoned(store, dead_owner)
        ended = await runner.cancel(run.run_id, reason="no use")
        assert (ended.status, ended.cancel_reason) == (RunStatus.CANCELED, "no use")

    async def test_the_reason_of_a_cancel_is_not_lent_to_others(
        self, new_runner: NewRunner, dead_owner: str
    ) -> None:
        store = InMemoryStore()
        runner = new_runner(store, reconcile_interval=1000)
        await runner.open()
        run, other = await abandoned(store, dead_owner), await abandoned(store, dead_owner)
        await runner.cancel(run.run_id, reason="no use")
        found = await store.get_run(other.run_id)
        assert found.status is RunStatus.INTERRUPTED
        assert found.interrupted_reason == "the process that ran it is gone"

    async def test_two_at_once_end_each_run_once(
        self, new_runner: NewRunner, dead_owner: str
    ) -> None:
        store = InMemoryStore()
        runs = [await abandoned(store, dead_owner, callbacks=(HOOK, CHATTY)) for _ in range(150)]
        sessions = [new_runner()._parts._new_session(store) for _ in range(2)]
        ended = await asyncio.gather(*(each.reconciler.reconcile("gone") for each in sessions))
        assert sorted(chain(*(each.interrupted for each in ended))) == sorted(
            run.run_id for run in runs
        )
        for run in runs:
            assert (await events(store, run.run_id)).count("run.interrupted") == 1
            told = (await store.list_deliveries(run_id=run.run_id)).items
            ends = [each for each in told if each.event.type == "run.interrupted"]
            assert sorted(each.target.name for each in ends) == ["chatty", "hook"]

    async def test_an_annotation_in_between_does_not_save_it(
        self, new_runner: NewRunner, dead_owner: str
    ) -> None:
        store = Between(InMemoryStore())
        run = await abandoned(store.real, dead_owner)

        async def note_first(real: Any, update: Any) -> Any:
            if store.count("update_run") == 1:
                await store.real.update_run(annotate(run, found="this"))
            return await real(update)

        store.rules["update_run"] = note_first
        await new_runner(store).open()
        found = await store.real.get_run(run.run_id)
        assert found.status is RunStatus.INTERRUPTED
        assert len(found.annotations) == 1

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
        act.hold("one/local")
        runner = new_runner(store, reconcile_interval=1000)
        options = tenure.RunOptions(run_id=RUN_ID)
        running = asyncio.create_task(runner.run(workflow(step("one"), step("two")), options))
        await act.begins("one/local")
        clock.advance(61)
        assert await new_runner(store).reconcile(reason="it was silent") == 1
        act.let_go("one/local")
        with pytest.raises(tenure.LeaseLost):
            await running
        assert act.begun == ["one/local"]
        run = await store.get_run(RUN_ID)
        assert (run.status, run.interrupted_reason) == (RunStatus.INTERRUPTED, "it was silent")


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

    @pytest.mark.parametrize("leases", [True, False])
    async def test_a_store_that_knows_no_such_conditions_harms_nobody(
        self, new_runner: NewRunner, dead_owner: str, leases: bool
    ) -> None:
        """An application's own, written before there were any: it answers with too much."""
        store = Between(InMemoryStore() if leases else DocumentStore(KeyValueService()))
        if leases:
            del store.list_owners
        queued = [new_run(recovery=Recovery.INTERRUPT) for _ in range(3)]
        for new in queued:
            await store.real.create_run(new)
        dead, late = await left_behind(store.real, dead_owner)

        async def as_before(real: Any, where: RunFilter, **page: Any) -> Any:
            return await real(replace(where, held=False, unapproved=False), **page)

        store.rules["list_runs"] = as_before
        await new_runner(store, reconcile_interval=1000).reconcile()
        assert (await store.real.get_run(dead.run_id)).status is RunStatus.INTERRUPTED
        assert (await store.real.get_run(late.run_id)).status is RunStatus.CANCELED
        for new in queued:
            assert (await store.real.get_run(new.snapshot.run_id)).status is RunStatus.QUEUED


async def left_behind(store: Any, owner_id: str) -> tuple[tenure.RunSnapshot, tenure.RunSnapshot]:
    """One whose owner is gone, one that nobody approved in time."""
    return await abandoned(store, owner_id), await waiting(store, 0.0)


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

    async def test_our_own_runs_are_not_ours_to_end(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store = DocumentStore(KeyValueService())
        runner = new_runner(store, runner_id="billing")
        act.hold("one/local")
        running = asyncio.create_task(runner.run(workflow(step("one"))))
        await act.begins("one/local")
        assert await runner.reconcile() == 0
        act.let_go("one/local")
        assert (await running).status is RunStatus.SUCCESS

    async def test_a_namesake_in_the_same_process_is_alive(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        """As when an application makes a runner for each request."""
        store = DocumentStore(KeyValueService())
        act.hold("one/local")
        first = new_runner(store, runner_id="billing")
        running = asyncio.create_task(first.run(workflow(step("one"))))
        await act.begins("one/local")
        second = new_runner(store, runner_id="billing")
        await second.open()
        assert await second.reconcile() == 0
        act.let_go("one/local")
        assert (await running).status is RunStatus.SUCCESS

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

    async def test_a_long_run_does_not_lose_its_owner_by_the_hour(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        """Nobody can renew such a lease, so it lasts; a cancel is still a request to the owner."""
        clock = ManualClock()
        store = DocumentStore(KeyValueService(), clock)
        runner = new_runner(store)
        act.hold("one/local")
        options = tenure.RunOptions(run_id=RUN_ID)
        running = asyncio.create_task(runner.run(workflow(step("one")), options))
        await act.begins("one/local")
        clock.advance(30 * 86400)
        assert not (await store.get_run(RUN_ID)).owner_lost
        await runner.cancel(RUN_ID)
        run = await asyncio.wait_for(running, PATIENCE)
        assert (run.status, run.unconfirmed_hosts) == (RunStatus.CANCELED, ())
        assert act.cancelled == ["one/local"]


async def test_the_loop_survives_whatever_the_store_raises(new_runner: NewRunner) -> None:
    store = Between(InMemoryStore())
    raised: list[int] = []
    enough = asyncio.Event()

    async def fail(real: Any, *args: Any, **kwargs: Any) -> Any:
        raised.append(1)
        if len(raised) > 2:
            enough.set()
            return await real(*args, **kwargs)
        raise KeyError("a bug")

    runner = new_runner(store, reconcile_interval=0.01, timing=QUICK)
    await runner.open()
    store.rules["list_runs"] = fail
    await asyncio.wait_for(enough.wait(), PATIENCE)


async def test_that_it_cannot_look_is_said_once_and_its_end_too(
    new_runner: NewRunner, caplog: pytest.LogCaptureFixture
) -> None:
    store = Between(InMemoryStore())
    failures = iter(range(3))

    async def fail(real: Any, *args: Any, **kwargs: Any) -> Any:
        if next(failures, None) is not None:
            raise KeyError("a bug")
        return await real(*args, **kwargs)

    runner = new_runner(store, reconcile_interval=0.01, timing=QUICK)
    await runner.open()
    store.rules["list_runs"] = fail
    async with asyncio.timeout(PATIENCE):
        while not [each for each in caplog.messages if "again" in each.split("; ")[0]]:
            await asyncio.sleep(0.01)
    assert [each for each in caplog.messages if "abandoned" in each] == [
        "cannot look for abandoned runs ('a bug'); it is tried again",
        "abandoned runs are looked for again",
    ]
