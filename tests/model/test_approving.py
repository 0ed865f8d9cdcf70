"""Approval against everything that may meet it, in every order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
from msgspec.structs import replace

from tenure.model import compose
from tenure.model.decide import apply, is_overdue, waits_for_approval
from tenure.model.errors import InvalidTransition, NotRunnable, Refused, StoreRejected
from tenure.model.leases import claim, create
from tenure.model.snapshot import Approval, RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import NewRun
from tenure.testing.factories import delivery_ids
from tests.model.samples import ALICE, AT, after, by_owner, effect, queued

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


def test_what_ended_is_not_overdue() -> None:
    run = canceling(SOON)(waiting())
    assert waits_for_approval(run)
    assert not is_overdue(run, after(LATE))


def test_a_claim_says_what_it_waits_for() -> None:
    with pytest.raises(NotRunnable, match="waits for approval"):
        claim(waiting(), ALICE, at=after(1), lease_live=False)


def test_more_time_than_a_calendar_has_is_refused() -> None:
    asks = replace(queued(steps=0), approval=Approval(required=True))
    with pytest.raises(StoreRejected, match="cannot wait"):
        create(NewRun(snapshot=asks, update_id="new", approval_seconds=1e300), AT)


def test_the_time_limit_concerns_only_those_that_wait() -> None:
    for approval in (Approval(), Approval(required=True, by="ann")):
        new = NewRun(snapshot=queued(approval=approval), update_id="new", approval_seconds=60.0)
        assert create(new, AT).approval.expires_at is None
