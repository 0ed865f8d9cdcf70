"""Why a run is not moving: one row per reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.snapshot import Approval, ErrorInfo, HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.ports.leases import Presence, WorkerInfo
from tenure.runtime.explain import Why, explain, explain_run, running_hosts
from tenure.runtime.owners import OwnerDoubt, doubt_about, owner_label
from tenure.runtime.stop import HAND_OVER
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import (
    approve,
    claim_request,
    lease_request,
    new_run,
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
LEAVING = WorkerInfo(owner_id="w3", concurrency=2, draining=True)

ROWS: list[tuple[str, RunSnapshot, dict[str, Any], Why, str]] = [
    (
        "success",
        run(status=RunStatus.SUCCESS, finished_at=ago(minutes=3)),
        {},
        Why.ENDED,
        "ended as success 3m ago",
    ),
    (
        "failed",
        run(
            status=RunStatus.FAILED,
            finished_at=ago(seconds=5),
            error=ErrorInfo(kind="exit", message="exit 1\non web1"),
        ),
        {},
        Why.ENDED,
        "ended as failed 5s ago: exit 1 on web1",
    ),
    (
        "canceled with doubts",
        run(
            status=RunStatus.CANCELED,
            finished_at=ago(hours=5),
            message="wrong release",
            unconfirmed_hosts=("web1", "web2"),
        ),
        {},
        Why.ENDED,
        "ended as canceled 5h ago: wrong release; "
        "its tasks on web1, web2 were not confirmed to have ended",
    ),
    (
        "interrupted",
        run(status=RunStatus.INTERRUPTED, finished_at=ago(days=4), interrupted_reason="power cut"),
        {},
        Why.ENDED,
        "ended as interrupted 4d ago: power cut",
    ),
    (
        "approval",
        run(approval=Approval(required=True)),
        {},
        Why.APPROVAL,
        "queued until it is approved",
    ),
    (
        "approval for a while",
        run(approval=Approval(required=True, expires_at=NOW + timedelta(hours=3))),
        {},
        Why.APPROVAL,
        "queued until it is approved, for 3h more",
    ),
    (
        "approval too late",
        run(approval=Approval(required=True, expires_at=ago(minutes=9))),
        {},
        Why.APPROVAL,
        "the time to approve it ended 9m ago",
    ),
    (
        "approved",
        run(approval=Approval(required=True, by="ann"), queue="night"),
        {},
        Why.WORKER,
        "approved by ann; waits for a worker of queue 'night'; tenure approve run-00001 runs it at "
        "once",
    ),
    (
        "not before",
        run(run_after=NOW + timedelta(minutes=10)),
        {},
        Why.LATER,
        "queued until 2026-05-01 12:10:00 UTC, in 10m",
    ),
    (
        "its time has come",
        run(run_after=ago(minutes=10)),
        {"workers": []},
        Why.WORKER,
        "queued; no worker serves queue 'default'; start one: tenure worker --queue default",
    ),
    (
        "no worker of this queue",
        run(queue="gpu"),
        {"workers": [BUSY, FREE]},
        Why.WORKER,
        "queued; no worker serves queue 'gpu'; start one: tenure worker --queue gpu",
    ),
    (
        "workers are busy",
        run(),
        {"workers": [BUSY]},
        Why.WORKER,
        "queued; waits for the worker of queue 'default', busy",
    ),
    (
        "a worker is free",
        run(),
        {"workers": [BUSY, FREE]},
        Why.WORKER,
        "queued; waits for one of 2 workers of queue 'default', 1 free",
    ),
    (
        "the only worker is stopping",
        run(),
        {"workers": [LEAVING]},
        Why.WORKER,
        "queued; the only worker of queue 'default' is stopping; start another: tenure worker "
        "--queue default",
    ),
    (
        "all workers are stopping",
        run(),
        {"workers": [LEAVING, replace(FREE, draining=True)]},
        Why.WORKER,
        "queued; all 2 workers of queue 'default' are stopping; start another: tenure worker "
        "--queue default",
    ),
    (
        "one of two workers is stopping",
        run(),
        {"workers": [LEAVING, FREE]},
        Why.WORKER,
        "queued; waits for the worker of queue 'default', free",
    ),
    (
        "owner lost, and the only worker is stopping",
        running(recovery=Recovery.RESUME),
        {"doubt": OwnerDoubt.GONE, "workers": [LEAVING]},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; the only worker of queue 'default' is stopping; "
        "start another: tenure worker --queue default",
    ),
    (
        "claimed",
        run(owner_id=OWNER),
        {},
        Why.CLAIMED,
        "claimed by process 812 on node7, about to start",
    ),
    (
        "claimed, and asked to stop",
        run(owner_id=OWNER, cancel_requested_at=ago(seconds=4), cancel_reason="enough"),
        {},
        Why.CANCELING,
        "cancel requested 4s ago (enough); process 812 on node7 has claimed it, and ends it before "
        "anything begins",
    ),
    (
        "claimed, and its owner is gone",
        run(owner_id=OWNER, recovery=Recovery.RESUME),
        {"doubt": OwnerDoubt.GONE},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; the next worker begins it",
    ),
    (
        "claimed, its owner is gone, and nobody there",
        run(owner_id=OWNER, recovery=Recovery.RESUME),
        {"doubt": OwnerDoubt.GONE, "workers": []},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; no worker serves queue 'default'; start one: "
        "tenure worker --queue default",
    ),
    (
        "claimed, its owner is gone, and it does not resume",
        run(owner_id=OWNER),
        {"doubt": OwnerDoubt.GONE},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; the next worker begins it, or the next "
        "reconcile marks it interrupted",
    ),
    (
        "claimed, its owner is gone, it does not resume, and nobody there",
        run(owner_id=OWNER),
        {"doubt": OwnerDoubt.GONE, "workers": []},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; the next reconcile marks it interrupted",
    ),
    (
        "claimed, its owner is gone, and asked to stop",
        run(owner_id=OWNER, cancel_requested_at=ago(seconds=4), recovery=Recovery.RESUME),
        {"doubt": OwnerDoubt.GONE},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; it was asked to stop and will be marked "
        "canceled by the next reconcile",
    ),
    (
        "owner frozen, and asked to stop",
        running(lease_expires_at=ago(minutes=3), cancel_requested_at=ago(seconds=4)),
        {"doubt": OwnerDoubt.SILENT},
        Why.OWNER_SILENT,
        "its owner, process 812 on node7, is alive but did not renew its lease, which ended 3m "
        "ago: frozen, or cut off; it was asked to stop and will be marked canceled by tenure "
        "reconcile",
    ),
    (
        "released",
        run(status=RunStatus.RUNNING, recovery=Recovery.RESUME),
        {},
        Why.WORKER,
        "given back by its owner; waits for a worker of queue 'default'",
    ),
    (
        "released, and nobody there",
        run(status=RunStatus.RUNNING, recovery=Recovery.RESUME),
        {"workers": []},
        Why.WORKER,
        "given back by its owner; no worker serves queue 'default'; start one: tenure worker "
        "--queue default",
    ),
    (
        "released, and asked to stop",
        run(
            status=RunStatus.RUNNING,
            recovery=Recovery.RESUME,
            cancel_requested_at=ago(seconds=4),
            cancel_reason="enough",
        ),
        {"workers": []},
        Why.CANCELING,
        "cancel requested 4s ago (enough); given back by its owner; the next worker, or tenure "
        "reconcile, marks it canceled",
    ),
    (
        "claimed, released, and asked to stop",
        run(recovery=Recovery.RESUME, cancel_requested_at=ago(seconds=4)),
        {},
        Why.CANCELING,
        "cancel requested 4s ago; given back by its owner; the next worker, or tenure reconcile, "
        "marks it canceled",
    ),
    (
        "owner lost",
        running(),
        {"doubt": OwnerDoubt.GONE},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; the next reconcile marks it interrupted",
    ),
    (
        "owner lost, resumes",
        running(recovery=Recovery.RESUME),
        {"doubt": OwnerDoubt.GONE},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; the next worker continues it",
    ),
    (
        "owner lost, resumes, and somebody there",
        running(recovery=Recovery.RESUME),
        {"doubt": OwnerDoubt.GONE, "workers": [BUSY]},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; the next worker continues it",
    ),
    (
        "owner lost, resumes, and nobody there",
        running(recovery=Recovery.RESUME, queue="gpu"),
        {"doubt": OwnerDoubt.GONE, "workers": [BUSY]},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; no worker serves queue 'gpu'; start one: "
        "tenure worker --queue gpu",
    ),
    (
        "owner lost while canceling",
        running(cancel_requested_at=ago(seconds=1)),
        {"doubt": OwnerDoubt.GONE},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, is gone; it was asked to stop and will be marked "
        "canceled by the next reconcile",
    ),
    (
        "owner frozen",
        running(lease_expires_at=ago(minutes=3)),
        {"doubt": OwnerDoubt.SILENT},
        Why.OWNER_SILENT,
        "its owner, process 812 on node7, is alive but did not renew its lease, which ended 3m "
        "ago: frozen, or cut off; tenure reconcile marks it interrupted",
    ),
    (
        "owner alive, and its lock of the file store gone",
        running(),
        {"doubt": OwnerDoubt.SILENT},
        Why.OWNER_SILENT,
        "its owner, process 812 on node7, is alive but no longer holds it; tenure reconcile "
        "(once that process is gone) marks it interrupted",
    ),
    (
        "owner elsewhere",
        running(lease_expires_at=ago(minutes=-1), recovery=Recovery.RESUME),
        {"doubt": OwnerDoubt.UNHEARD},
        Why.OWNER_LOST,
        "its owner, process 812 on node7, did not renew its lease, which is over; the next worker "
        "continues it",
    ),
    (
        "given back for ever",
        run(status=RunStatus.RUNNING),
        {"doubt": OwnerDoubt.UNHEARD},
        Why.OWNER_LOST,
        "it has no owner; tenure reconcile marks it interrupted",
    ),
    (
        "between steps",
        running(),
        {},
        Why.BETWEEN,
        "running on process 812 on node7, between two steps",
    ),
    (
        "one host",
        running(step(("web1", R, ago(minutes=12)))),
        {},
        Why.HOSTS,
        "running on process 812 on node7: step 'restart' waits for host web1 (for 12m)",
    ),
    (
        "verified after a takeover",
        running(step(("a", U, None), ("b", S, None))),
        {},
        Why.HOSTS,
        "running on process 812 on node7: step 'restart': a is being verified after its worker was "
        "lost",
    ),
    (
        "verified beside others",
        running(step(("a", U, None), ("b", U, None), ("c", R, ago(seconds=7)), ("d", P, None))),
        {},
        Why.HOSTS,
        "running on process 812 on node7: step 'restart' waits for 1 of 4 hosts: c (for 7s); a, b "
        "are being verified after their worker was lost; 1 has not started",
    ),
    (
        "handed over",
        running(
            step(hosts={"a": HostState(status=U, message=HAND_OVER.message)}, status=S_RUNNING)
        ),
        {},
        Why.HOSTS,
        "running on process 812 on node7: step 'restart': a was ended by its worker, which was "
        "told to stop",
    ),
    (
        "longest first",
        running(
            step(("a", S, None), ("b", R, ago(seconds=7)), ("c", R, ago(hours=2)), ("d", P, None))
        ),
        {},
        Why.HOSTS,
        "running on process 812 on node7: step 'restart' waits for 2 of 4 hosts: c (for 2h), "
        "b (for 7s); 1 has not started",
    ),
    (
        "many hosts",
        running(step(*((f"h{n}", R, None) for n in range(8)))),
        {},
        Why.HOSTS,
        "running on process 812 on node7: step 'restart' waits for 8 of 8 hosts: h0, h1, h2, h3, "
        "h4, 3 more",
    ),
    (
        "about to start",
        running(step(("a", P, None), ("b", P, None))),
        {},
        Why.HOSTS,
        "running on process 812 on node7: step 'restart' is about to start 2 hosts",
    ),
    (
        "retrying",
        running(
            step(
                hosts={"a": HostState(status=R, attempts=3, started_at=ago(seconds=1))},
            )
        ),
        {},
        Why.HOSTS,
        "running on process 812 on node7: step 'restart' waits for host a (for 1s, attempt 3)",
    ),
    (
        "canceling",
        running(
            step(("a", R, ago(seconds=30))),
            cancel_requested_at=ago(seconds=4),
            cancel_reason="wrong release",
        ),
        {},
        Why.CANCELING,
        "cancel requested 4s ago (wrong release); process 812 on node7 ends what runs: "
        "step 'restart' waits for host a (for 30s)",
    ),
    (
        "canceling the last moment",
        running(cancel_requested_at=ago(seconds=4)),
        {},
        Why.CANCELING,
        "cancel requested 4s ago; process 812 on node7 ends what runs: nothing any more",
    ),
]


@pytest.mark.parametrize(
    ("snapshot", "around", "why", "text"),
    [row[1:] for row in ROWS],
    ids=[row[0].replace(" ", "-") for row in ROWS],
)
def test_every_reason_has_its_line(
    snapshot: RunSnapshot, around: dict[str, Any], why: Why, text: str
) -> None:
    said = explain(snapshot, NOW, **around)
    assert (said.reason, said.text) == (why, text)
    assert (said.run_id, said.status) == (snapshot.run_id, snapshot.status)


def test_every_reason_is_in_the_table() -> None:
    assert {row[3] for row in ROWS} == set(Why)


def test_the_hosts_waited_for_are_named_for_programs() -> None:
    snapshot = running(step(("a", R, ago(seconds=1)), ("b", R, ago(seconds=9)), ("c", S, None)))
    assert explain(snapshot, NOW).hosts == ("b", "a")


def test_hosts_without_a_start_come_last() -> None:
    found = running_hosts(step(("a", R, None), ("b", R, ago(seconds=9)), ("c", R, None)))
    assert [name for name, _ in found] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("owner", "label"),
    [
        (None, "no owner"),
        (OWNER, "process 812 on node7"),
        (f"{OWNER}@billing", "process 812 on node7 (billing)"),
        ("worker-3", "worker-3"),
    ],
)
def test_an_owner_is_named_for_people(owner: str | None, label: str) -> None:
    assert owner_label(owner) == label


HELD = {"status": RunStatus.RUNNING, "owner_id": OWNER}
LOST = {"status": RunStatus.RUNNING, "owner_lost": True}


@pytest.mark.parametrize(
    ("facts", "seen", "doubt"),
    [
        (HELD, Presence.ALIVE, None),
        (HELD, Presence.UNSEEN, None),
        (HELD, Presence.GONE, OwnerDoubt.GONE),
        (HELD | LOST, Presence.GONE, OwnerDoubt.GONE),
        (HELD | LOST, Presence.ALIVE, OwnerDoubt.SILENT),
        (HELD | LOST, Presence.UNSEEN, OwnerDoubt.UNHEARD),
        (LOST, Presence.GONE, OwnerDoubt.UNHEARD),
        (LOST | {"recovery": Recovery.RESUME}, Presence.GONE, None),
        ({"status": RunStatus.QUEUED}, Presence.GONE, None),
        (HELD | {"status": RunStatus.SUCCESS}, Presence.GONE, None),
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
@pytest.mark.parametrize("recovery", list(Recovery))
@pytest.mark.parametrize("hours", [-1, 0, 1])
async def test_one_that_was_claimed_and_never_began_is_not_about_to_start_for_ever(
    seen: Presence, why: str, recovery: Recovery, hours: int
) -> None:
    """``hours`` is by how much the clock of whoever asks is wrong."""
    clock, wrong = ManualClock(), timedelta(hours=hours)
    store = InMemoryStore(clock)
    await store.create_run(new_run(run_id="run-00001", recovery=recovery))
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


UNTIL = NOW + timedelta(seconds=25)


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (run(owner_id=OWNER), "claimed by process 812 on node7, about to start"),
        (
            run(owner_id=OWNER, cancel_requested_at=ago(seconds=4)),
            "cancel requested 4s ago; process 812 on node7 has claimed it, and ends it before "
            "anything begins",
        ),
        (running(), "running on process 812 on node7, between two steps"),
        (
            running(step(("web1", R, ago(minutes=12)))),
            "running on process 812 on node7: step 'restart' waits for host web1 (for 12m)",
        ),
        (
            running(cancel_requested_at=ago(seconds=4)),
            "cancel requested 4s ago; process 812 on node7 ends what runs: nothing any more",
        ),
    ],
    ids=["claimed", "claimed-canceling", "between", "hosts", "canceling"],
)
def test_until_when_somebody_has_it_is_said(held: RunSnapshot, text: str) -> None:
    said = explain(replace(held, lease_expires_at=UNTIL), NOW)
    assert (said.text, said.lease_expires_at) == (f"{text}; its lease ends in 25s", UNTIL)
    linked = explain(replace(held, lease_expires_at=UNTIL, retry_of="run-00000"), NOW)
    assert linked.text == f"{text}; its lease ends in 25s (a retry of run-00000)"


@pytest.mark.parametrize(
    ("facts", "doubt"),
    [
        ({"lease_expires_at": ago(seconds=0)}, None),  # a clock was set; the store knows better
        ({"lease_expires_at": UNTIL}, OwnerDoubt.GONE),
        ({"lease_expires_at": None}, None),
    ],
)
def test_of_no_other_run(facts: dict[str, Any], doubt: OwnerDoubt | None) -> None:
    assert "lease" not in explain(running(**facts), NOW, doubt=doubt).text


@pytest.mark.parametrize("hours", [-2, 0, 2])
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
