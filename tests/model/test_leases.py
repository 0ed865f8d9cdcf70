"""Birth and ownership, and approval against everything that may meet it, in every order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from tenure.model import compose
from tenure.model.decide import apply, is_overdue
from tenure.model.errors import (
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    Refused,
    StoreRejected,
)
from tenure.model.leases import Purpose, claim, create, present, release, why_not_runnable
from tenure.model.snapshot import (
    Annotation,
    Approval,
    CallbackError,
    CallbackTarget,
    HostState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import Fencing, LeaseRequest, NewRun
from tenure.testing.factories import delivery_ids
from tests.model.samples import (
    ALICE,
    AT,
    BOB,
    after,
    at_status,
    by_owner,
    effect,
    owned,
    plan,
    queued,
    running,
)

LEASE = LeaseRequest(owner_id=ALICE, seconds=60, claim_id="c1")


def new(lease: LeaseRequest | None = None, **fields: Any) -> NewRun:
    given: dict[str, Any] = {"run_id": "run-00001", "workflow_name": "deploy"}
    return NewRun(snapshot=RunSnapshot(**given | fields), update_id="u1", lease=lease)


# -- create ---------------------------------------------------------------------------------------
def test_a_new_run_is_queued_at_version_one_with_nobody() -> None:
    run = create(new(steps=plan()), AT)
    assert (run.version, run.fence, run.owner_id, run.status) == (1, 0, None, RunStatus.QUEUED)
    assert (run.created_at, run.updated_at, run.started_at, run.finished_at) == (AT, AT, None, None)
    assert (run.counts.steps_total, run.counts.hosts_total, run.counts.hosts) == (2, 4, {})


def test_an_embedded_run_is_born_running_owned_and_with_its_first_intent() -> None:
    first = StepState(
        index=0,
        status=StepStatus.RUNNING,
        hosts={"web1": HostState(status=HostStatus.RUNNING), "web2": HostState()},
    )
    run = create(new(LEASE, status=RunStatus.RUNNING, steps=(first, plan()[1])), AT)
    assert (run.fence, run.owner_id, run.started_at) == (1, ALICE, AT)
    assert run.steps[0].started_at == run.steps[0].hosts["web1"].started_at == AT
    assert run.steps[0].hosts["web2"].started_at is None
    assert run.counts.steps == {StepStatus.RUNNING: 1}
    assert run.counts.hosts == {HostStatus.RUNNING: 1}


def test_what_only_the_store_may_say_is_not_taken_from_the_caller() -> None:
    cheeky: dict[str, Any] = {
        "version": 9,
        "fence": 9,
        "owner_id": BOB,
        "owner_lost": True,
        "takeovers": 9,
        "takeovers_without_progress": 9,
        "created_at": after(9),
        "updated_at": after(9),
        "started_at": after(9),
        "finished_at": after(9),
        "lease_expires_at": after(9),
        "cancel_requested_at": after(9),
        "annotations": (Annotation(id="n", data={}),),
        "callback_error": CallbackError(target="t", event="e", error="x", attempts=1, at=AT),
    }
    assert create(new(**cheeky), AT) == create(new(), AT)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"priority": 101}, "priority 101"),
        ({"priority": -101}, "priority -101"),
        *(({"status": end}, "cannot be born") for end in ("success", "failed", "canceled")),
        ({"status": RunStatus.INTERRUPTED}, "cannot be born"),
        ({"steps": (StepState(index=1),)}, "carries index 1"),
        ({"steps": (StepState(index=0, status=StepStatus.SUCCESS),)}, "cannot be born success"),
        ({"callbacks": (CallbackTarget(name="a"), CallbackTarget(name="a"))}, "same name"),
        (
            {
                "status": RunStatus.RUNNING,
                "steps": (
                    StepState(
                        index=0,
                        status=StepStatus.RUNNING,
                        hosts={"web1": HostState(status=HostStatus.FAILED)},
                    ),
                ),
            },
            "'web1' cannot be born failed",
        ),
    ],
)
def test_a_birth_that_makes_no_sense_is_rejected(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(StoreRejected, match=why):
        create(new(**fields), AT)


# -- runnable -------------------------------------------------------------------------------------
RESUME, INTERRUPT = Recovery.RESUME, Recovery.INTERRUPT


@pytest.mark.parametrize(
    ("run", "execute", "reconcile"),
    [
        (queued(), True, False),
        (queued(recovery=RESUME), True, False),
        (queued(run_after=after(1)), False, False),
        (queued(run_after=AT), True, False),
        (queued(approval=Approval(required=True)), False, False),
        (queued(approval=Approval(required=True, by="ann", at=AT)), True, False),
        (running(recovery=RESUME), True, False),
        (running(recovery=INTERRUPT), False, True),
        (owned(recovery=INTERRUPT), True, True),
        *((at_status(end), False, False) for end in ("success", "failed", "canceled")),
        (at_status("interrupted"), False, False),
    ],
)
def test_who_may_be_claimed_for_what(run: RunSnapshot, execute: bool, reconcile: bool) -> None:
    for purpose, expected in ((Purpose.EXECUTE, execute), (Purpose.RECONCILE, reconcile)):
        assert (why_not_runnable(run, AT, purpose) is None) is expected, purpose
        if expected:
            assert claim(run, BOB, at=AT, lease_live=False, purpose=purpose).event is not None
        else:
            with pytest.raises(NotRunnable):
                claim(run, BOB, at=AT, lease_live=False, purpose=purpose)


# -- claim ----------------------------------------------------------------------------------------
def test_a_first_claim_raises_fence_and_version_and_is_no_takeover() -> None:
    claimed = claim(queued(), ALICE, at=after(1), lease_live=False)
    run = claimed.snapshot
    assert (run.version, run.fence, run.owner_id, run.takeovers) == (2, 1, ALICE, 0)
    assert (run.status, run.updated_at) == (RunStatus.QUEUED, after(1))
    assert claimed.event is not None
    assert claimed.event.type == "lease.claimed"
    assert claimed.event.data == {"owner_id": ALICE, "fence": 1, "purpose": Purpose.EXECUTE}


def test_a_claim_after_expiry_is_a_takeover_and_names_both_owners() -> None:
    claimed = claim(running(recovery=RESUME), BOB, at=after(90), lease_live=False)
    run = claimed.snapshot
    assert (run.fence, run.owner_id) == (2, BOB)
    assert (run.takeovers, run.takeovers_without_progress) == (1, 1)
    assert claimed.event is not None
    assert claimed.event.type == "lease.taken_over"
    assert claimed.event.data is not None
    assert (claimed.event.data["owner_id"], claimed.event.data["from"]) == (BOB, ALICE)


def test_a_claim_after_release_is_no_takeover_but_a_new_fence() -> None:
    freed = release(running(recovery=RESUME), Fencing(ALICE, 1), after(1)).snapshot
    again = claim(freed, ALICE, at=after(2), lease_live=False).snapshot
    assert (again.fence, again.takeovers, again.owner_id) == (2, 0, ALICE)


def test_a_live_lease_is_not_taken_by_another_and_only_renewed_by_its_owner() -> None:
    run = owned()
    with pytest.raises(LeaseHeld) as held:
        claim(run, BOB, at=AT, lease_live=True, expires_at=after(60))
    assert (held.value.owner_id, held.value.expires_at) == (ALICE, after(60))
    mine = claim(run, ALICE, at=AT, lease_live=True)
    assert (mine.snapshot, mine.event) == (run, None)


def test_held_answers_before_not_runnable() -> None:
    with pytest.raises(LeaseHeld):
        claim(running(recovery=INTERRUPT), BOB, at=AT, lease_live=True)


# -- release --------------------------------------------------------------------------------------
def test_release_keeps_status_and_fence() -> None:
    released = release(running(), Fencing(ALICE, 1), after(1))
    run = released.snapshot
    assert (run.version, run.fence, run.owner_id, run.status) == (4, 1, None, RunStatus.RUNNING)
    assert released.event is not None
    assert released.event.type == "lease.released"
    again = release(run, Fencing(ALICE, 1), after(2))
    assert (again.snapshot, again.event) == (run, None)


@pytest.mark.parametrize("fencing", [Fencing(BOB, 1), Fencing(ALICE, 0), Fencing(ALICE, 2)])
def test_only_the_owner_releases(fencing: Fencing) -> None:
    with pytest.raises(LeaseLost):
        release(running(), fencing, after(1))


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "live", "lost"),
    [
        ("queued", False, False),
        ("running", True, False),
        ("running", False, True),
        ("success", False, False),
        ("interrupted", False, False),
    ],
)
def test_owner_lost_means_running_without_a_live_lease(status: str, live: bool, lost: bool) -> None:
    seen = present(at_status(status), lease_live=live, expires_at=after(60) if live else None)
    assert seen.owner_lost is lost
    assert seen.lease_expires_at == (after(60) if live else None)


Act = Callable[[RunSnapshot], RunSnapshot]
SOON, LATE = 1.0, 100.0


def waiting(seconds: float | None = 60.0) -> RunSnapshot:
    asks = queued(steps=0, approval=Approval(required=True))
    return create(NewRun(snapshot=asks, update_id="new", approval_seconds=seconds), AT)


def approving(by: str, at: float) -> Act:
    update = compose.approve("run-00001", f"yes-{by}", by)
    return lambda run: apply(run, update, at=after(at)).snapshot


def expiring(at: float) -> Act:
    return lambda run: apply(
        run, compose.expire(run, f"late-{run.version}", delivery_ids()), at=after(at)
    )[0]


def canceling(at: float) -> Act:
    return lambda run: apply(run, compose.cancel(run, "no", delivery_ids()), at=after(at)).snapshot


def beginning(at: float) -> Act:
    """Claimed, and begun."""

    def act(run: RunSnapshot) -> RunSnapshot:
        claimed = claim(run, ALICE, at=after(at), lease_live=False).snapshot
        return apply(claimed, by_owner(claimed, effect(run=RunStatus.RUNNING)), at=after(at))[0]

    return act


@pytest.mark.parametrize("at", [SOON, LATE])
def test_every_order_of_two_approvers_expiry_cancel_and_claim(at: float) -> None:
    """Whoever comes first, in time or too late, also if an answer was lost and a call arrives
    twice: one approver, one end, nothing begins without a yes, what was approved does not expire.
    """
    acts = {
        "ann": approving("ann", at),
        "ann again": approving("ann", at),
        "bob": approving("bob", at),
        "expiry": expiring(at),
        "cancel": canceling(at),
        "worker": beginning(at),
    }
    for order in permutations(acts):
        run, done = waiting(), list[str]()
        for name in order:
            try:
                then = acts[name](run)
            except Refused:
                continue
            assert not (run.ended and then != run), f"{order}: {name} changed what had ended"
            if then != run:
                done.append(name)
            run = then
        approvers = [name for name in done if name.startswith(("ann", "bob"))]
        assert run.approval.by == (approvers[0].split()[0] if approvers else None), order
        assert len(approvers) <= (1 if at == SOON else 0), order
        assert not ("expiry" in done and (approvers or at == SOON)), order
        if "worker" in done:
            assert done.index("worker") > done.index(approvers[0]), order
        assert run.status is RunStatus.CANCELED, order


def test_the_moment_it_expires_belongs_to_the_expiry() -> None:
    run = waiting(60.0)
    assert not is_overdue(run, after(59.999))
    assert is_overdue(run, after(60))
    with pytest.raises(InvalidTransition, match="until 2026-01-01 12:01:00 UTC, not later"):
        approving("ann", 60)(run)
    assert expiring(60)(run).status is RunStatus.CANCELED


def test_without_a_time_limit_it_waits_for_ever() -> None:
    run = waiting(None)
    with pytest.raises(InvalidTransition, match="may be approved at any time"):
        expiring(10**9)(run)
    assert approving("ann", 10**9)(run).approval.by == "ann"


def test_the_time_limit_concerns_only_those_that_wait() -> None:
    for approval in (Approval(), Approval(required=True, by="ann")):
        new = NewRun(snapshot=queued(approval=approval), update_id="new", approval_seconds=60.0)
        assert create(new, AT).approval.expires_at is None
