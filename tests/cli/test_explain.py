"""Why a run is not moving, one row per reason; and for how long a run is followed whose owner gives
no sign of life. Both are called directly: no command brings about every reason at a given time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.cli.follow import follow
from tenure.cli.view import View
from tenure.model.snapshot import Approval, ErrorInfo, HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import RecordedEvent
from tenure.ports.leases import Presence, WorkerInfo
from tenure.runtime.explain import Why, explain, explain_run
from tenure.runtime.owners import OwnerDoubt, doubt_about
from tenure.runtime.stop import HAND_OVER
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import (
    approve,
    claim_request,
    embedded_run,
    end_run,
    lease_request,
    new_run,
    start_step,
)

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
OWNER = "node7/boot-1/4026531836/812/99887766/0badcafe"


def ago(**time: float) -> datetime:
    return NOW - timedelta(**time)


def run(**facts: Any) -> RunSnapshot:
    return RunSnapshot(run_id="run-00001", workflow_name="deploy", **facts)


def running(*steps: StepState, **facts: Any) -> RunSnapshot:
    return run(status=RunStatus.RUNNING, owner_id=OWNER, steps=steps, **facts)


def step(*hosts: tuple[str, HostStatus, datetime | None], **facts: Any) -> StepState:
    states = {name: HostState(status=status, started_at=at) for name, status, at in hosts}
    return StepState(
        index=0, name="restart", **{"status": StepStatus.RUNNING, "hosts": states, **facts}
    )


R, P, S = HostStatus.RUNNING, HostStatus.PENDING, HostStatus.SUCCESS
U, S_RUNNING = HostStatus.UNKNOWN, StepStatus.RUNNING
BUSY = WorkerInfo(owner_id="w1", queues=("default",), concurrency=2, running=2)
FREE = WorkerInfo(owner_id="w2", queues=("default", "night"), concurrency=2, running=1)

Row = tuple[Why, str, RunSnapshot, dict[str, Any]]


def because(why: Why, text: str, snapshot: RunSnapshot, **around: Any) -> Row:
    """``P`` is the process that owns it."""
    text = text.replace("P", "process 812 on node7").replace("…", "--queue default")
    return why, text, snapshot, around


ROWS = [
    because(
        Why.ENDED,
        "ended as success 3m ago",
        run(status=RunStatus.SUCCESS, finished_at=ago(minutes=3)),
    ),
    because(
        Why.ENDED,
        "ended as failed 5s ago: exit 1 on web1",
        run(
            status=RunStatus.FAILED,
            finished_at=ago(seconds=5),
            error=ErrorInfo(kind="exit", message="exit 1\non web1"),
        ),
    ),
    because(
        Why.ENDED,
        "ended as canceled 5h ago: wrong release; "
        "the end of its tasks on web1, web2 was not confirmed",
        run(
            status=RunStatus.CANCELED,
            finished_at=ago(hours=5),
            message="wrong release",
            unconfirmed_hosts=("web1", "web2"),
        ),
    ),
    because(Why.APPROVAL, "queued until it is approved", run(approval=Approval(required=True))),
    because(
        Why.APPROVAL,
        "queued until it is approved, for 3h more",
        run(approval=Approval(required=True, expires_at=NOW + timedelta(hours=3))),
    ),
    because(
        Why.WORKER,
        "approved by ann; waits for a worker of queue 'night'; tenure approve run-00001 runs "
        "it at once",
        run(approval=Approval(required=True, by="ann"), queue="night"),
    ),
    because(
        Why.LATER,
        "queued until 2026-05-01 12:10:00 UTC, in 10m",
        run(run_after=NOW + timedelta(minutes=10)),
    ),
    because(
        Why.WORKER, "queued; waits for the worker of queue 'default', busy", run(), workers=[BUSY]
    ),
    because(
        Why.WORKER,
        "queued; waits for one of 2 workers of queue 'default', 1 free",
        run(),
        workers=[BUSY, FREE],
    ),
    because(Why.CLAIMED, "claimed by P, about to start", run(owner_id=OWNER)),
    because(
        Why.CANCELING,
        "cancel requested 4s ago (enough); P has claimed it, and ends it before anything begins",
        run(owner_id=OWNER, cancel_requested_at=ago(seconds=4), cancel_reason="enough"),
    ),
    because(
        Why.OWNER_LOST,
        "its owner, P, is gone; the next worker begins it",
        run(owner_id=OWNER, recovery=Recovery.RESUME),
        doubt=OwnerDoubt.GONE,
    ),
    because(
        Why.OWNER_LOST,
        "its owner, P, is gone; the next worker begins it, or the next reconcile marks it "
        "interrupted",
        run(owner_id=OWNER),
        doubt=OwnerDoubt.GONE,
    ),
    because(
        Why.WORKER,
        "given back by its owner; waits for a worker of queue 'default'",
        run(status=RunStatus.RUNNING, recovery=Recovery.RESUME),
    ),
    because(
        Why.OWNER_LOST,
        "its owner, P, is gone; the next reconcile marks it interrupted",
        running(),
        doubt=OwnerDoubt.GONE,
    ),
    because(
        Why.OWNER_LOST,
        "its owner, P, is gone; the next worker continues it",
        running(recovery=Recovery.RESUME),
        doubt=OwnerDoubt.GONE,
    ),
    because(
        Why.OWNER_LOST,
        "its owner, P, is gone; no worker serves queue 'gpu'; start one: tenure worker --queue gpu",
        running(recovery=Recovery.RESUME, queue="gpu"),
        doubt=OwnerDoubt.GONE,
        workers=[BUSY],
    ),
    because(
        Why.OWNER_SILENT,
        "its owner, P, is alive but did not renew its lease, which ended 3m ago: frozen, or "
        "cut off; tenure reconcile marks it interrupted",
        running(lease_expires_at=ago(minutes=3)),
        doubt=OwnerDoubt.SILENT,
    ),
    because(
        Why.OWNER_SILENT,
        "its owner, P, is alive but no longer holds it; tenure reconcile (once that process is "
        "gone) marks it interrupted",
        running(),
        doubt=OwnerDoubt.SILENT,
    ),
    because(
        Why.OWNER_LOST,
        "its owner, P, did not renew its lease, which is over; the next worker continues it",
        running(lease_expires_at=ago(minutes=-1), recovery=Recovery.RESUME),
        doubt=OwnerDoubt.UNHEARD,
    ),
    because(
        Why.OWNER_LOST,
        "it has no owner; tenure reconcile marks it interrupted",
        run(status=RunStatus.RUNNING),
        doubt=OwnerDoubt.UNHEARD,
    ),
    because(Why.BETWEEN, "running on P, between two steps", running()),
    because(
        Why.HOSTS,
        "running on P: step 'restart' waits for host web1 (for 12m)",
        running(step(("web1", R, ago(minutes=12)))),
    ),
    because(
        Why.HOSTS,
        "running on P: step 'restart' waits for 1 of 4 hosts: c (for 7s); a, b are being "
        "verified after their worker was lost; 1 has not started",
        running(step(("a", U, None), ("b", U, None), ("c", R, ago(seconds=7)), ("d", P, None))),
    ),
    because(
        Why.HOSTS,
        "running on P: step 'restart': a was ended by its worker, which was told to stop",
        running(
            step(hosts={"a": HostState(status=U, message=HAND_OVER.message)}, status=S_RUNNING)
        ),
    ),
    because(
        Why.HOSTS,
        "running on P: step 'restart' waits for 8 of 8 hosts: h0, h1, h2, h3, h4, 3 more",
        running(step(*((f"h{n}", R, None) for n in range(8)))),
    ),
    because(
        Why.HOSTS,
        "running on P: step 'restart' waits for host a (for 1s, attempt 3)",
        running(step(hosts={"a": HostState(status=R, attempts=3, started_at=ago(seconds=1))})),
    ),
    because(
        Why.CANCELING,
        "cancel requested 4s ago (wrong release); P ends what runs: step 'restart' waits for "
        "host a (for 30s)",
        running(
            step(("a", R, ago(seconds=30))),
            cancel_requested_at=ago(seconds=4),
            cancel_reason="wrong release",
        ),
    ),
]


@pytest.mark.parametrize(("why", "text", "snapshot", "around"), ROWS)
def test_every_reason_has_its_line(
    why: Why, text: str, snapshot: RunSnapshot, around: dict[str, Any]
) -> None:
    said = explain(snapshot, NOW, **around)
    assert (said.reason, said.text) == (why, text)
    assert (said.run_id, said.status) == (snapshot.run_id, snapshot.status)


def test_every_reason_is_in_the_table() -> None:
    assert {row[0] for row in ROWS} == set(Why)


HELD = {"status": RunStatus.RUNNING, "owner_id": OWNER}
LOST = {"status": RunStatus.RUNNING, "owner_lost": True}


@pytest.mark.parametrize(
    ("facts", "seen", "doubt"),
    [
        (HELD, Presence.UNSEEN, None),
        (HELD, Presence.GONE, OwnerDoubt.GONE),
        (HELD | LOST, Presence.ALIVE, OwnerDoubt.SILENT),
        (HELD | LOST, Presence.UNSEEN, OwnerDoubt.UNHEARD),
        (LOST, Presence.GONE, OwnerDoubt.UNHEARD),
        (LOST | {"recovery": Recovery.RESUME}, Presence.GONE, None),
        ({"status": RunStatus.QUEUED}, Presence.GONE, None),
    ],
)
def test_a_lease_that_ran_out_does_not_prove_that_its_owner_is_gone(
    facts: dict[str, Any], seen: Presence, doubt: OwnerDoubt | None
) -> None:
    assert doubt_about(run(**facts), lambda _: seen) is doubt


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Presence.ALIVE, "is alive but did not renew its lease, which ended 5m ago: frozen, or"),
        (Presence.UNSEEN, "did not renew its lease, which ended 5m ago"),
        (Presence.GONE, "is gone"),
    ],
)
@pytest.mark.parametrize("hours", [-1, 1])
async def test_one_that_was_claimed_and_never_began_is_not_about_to_start_for_ever(
    seen: Presence, why: str, hours: int
) -> None:
    """``hours`` is by how much the clock of whoever asks is wrong."""
    clock, wrong = ManualClock(), timedelta(hours=hours)
    store = InMemoryStore(clock)
    await store.create_run(new_run(run_id="run-00001", recovery=Recovery.RESUME))
    await store.claim_run("run-00001", lease_request(OWNER, seconds=60))
    there = Presence.ALIVE
    now = clock.now() + wrong
    said = await explain_run(store, "run-00001", now=now, presence=lambda _: there)
    assert said.reason is Why.CLAIMED
    clock.advance(360)
    now = clock.now() + wrong
    said = await explain_run(store, "run-00001", now=now, presence=lambda _: seen)
    assert said.text.startswith(f"its owner, process 812 on node7, {why}")
    # And what it says of whoever comes next is what a store does.
    assert await store.claim_runs(claim_request("next"))


@pytest.mark.parametrize("hours", [-2, 2])
async def test_what_a_run_waits_for_is_judged_by_the_clock_of_the_store(hours: int) -> None:
    """``hours`` is by how much the clock of whoever asks is wrong."""
    clock = ManualClock()
    store, later = InMemoryStore(clock), clock.now() + timedelta(minutes=30)

    async def said() -> tuple[Why, str]:
        now = clock.now() + timedelta(hours=hours)
        answer = await explain_run(store, "run-00001", now=now, presence=lambda _: Presence.ALIVE)
        return answer.reason, answer.text

    new = new_run(run_id="run-00001", run_after=later, approval=Approval(required=True))
    await store.create_run(replace(new, approval_seconds=600.0))
    assert await said() == (Why.APPROVAL, "queued until it is approved, for 10m more")
    await store.update_run(approve(new.snapshot))
    assert await said() == (Why.LATER, f"queued until {later:%Y-%m-%d %H:%M:%S} UTC, in 30m")
    clock.advance(1801)
    assert (await said())[0] is Why.WORKER
    await store.claim_run("run-00001", lease_request(OWNER, seconds=60))
    clock.advance(10)
    assert await said() == (
        Why.CLAIMED,
        "claimed by process 812 on node7, about to start; its lease ends in 50s",
    )


PATIENCE = 10.0


class Onlooker:
    """A view that remembers; ``noticed`` is set with each notice."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.notices: list[str] = []
        self.noticed = asyncio.Event()

    async def record(self, event: RecordedEvent) -> None:
        self.types.append(event.type)

    def notice(self, text: str) -> None:
        self.notices.append(text)
        self.noticed.set()

    @property
    def view(self) -> View:
        return View((self,), self.notice)


async def begun(store: InMemoryStore, **fields: Any) -> RunSnapshot:
    new = embedded_run(OWNER, **fields)
    await store.create_run(new)
    run = await store.get_run(new.snapshot.run_id)
    await store.update_run(start_step(run))
    return await store.get_run(run.run_id)


async def explained(run: RunSnapshot) -> str:
    return f"why it is {run.status}"


async def followed(
    store: Any, run: RunSnapshot, onlooker: Onlooker, *, dead: bool = False, patience: float = 0.0
) -> RunSnapshot:
    async with asyncio.timeout(PATIENCE):
        return await follow(
            store, run.run_id, onlooker.view, 0.001, lambda owner: dead, explained, patience
        )


@pytest.mark.parametrize(
    ("recovery", "dead", "said"),
    [
        (Recovery.RESUME, True, "is gone; the next worker goes on with the run"),
        (Recovery.RESUME, False, "has not been heard of; the next worker goes on with the run"),
        (Recovery.INTERRUPT, False, "has not been heard of; if it is gone: tenure reconcile"),
    ],
)
async def test_while_somebody_could_finish_it_one_notice_and_patience(
    recovery: Recovery, dead: bool, said: str
) -> None:
    clock = ManualClock()
    store, onlooker = InMemoryStore(clock), Onlooker()
    run = await begun(store, recovery=recovery, seconds=60)
    clock.advance(61)
    following = asyncio.create_task(followed(store, run, onlooker, dead=dead))
    async with asyncio.timeout(PATIENCE):
        await onlooker.noticed.wait()
    await store.update_run(end_run(run, RunStatus.FAILED))
    assert (await following).status is RunStatus.FAILED
    assert onlooker.notices == [f"process 812 on node7 {said}"]


class EndsMeanwhile:
    """A store whose run ends, and with it its process, right after the first look at it."""

    def __init__(self, store: InMemoryStore) -> None:
        self._store = store
        self._looks: Iterator[int] = iter(range(100))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_run(self, run_id: str) -> RunSnapshot:
        run = await self._store.get_run(run_id)
        if next(self._looks) == 0:
            await self._store.update_run(end_run(run, RunStatus.FAILED))
        return run


async def test_a_process_that_ended_after_its_work_is_not_taken_for_a_dead_one() -> None:
    store, onlooker = InMemoryStore(), Onlooker()
    run = await begun(store)
    ended = await followed(EndsMeanwhile(store), run, onlooker, dead=True)
    assert ended.status is RunStatus.FAILED
    assert onlooker.types[-1] == "run.failed"
    assert onlooker.notices == []
