"""The holes of STORE-NOTES section 1 that concern the protocol, each as a rule switched off.

What each one costs a user is the invariant it breaks. Holes 8 to 11 and 15 to 19 are about
storage, batches, feeds and output; stores and runtime are where those are tested.
"""

from __future__ import annotations

from typing import NamedTuple

from tenure.model.decide import (
    CHECKS,
    Check,
    Circumstances,
    Verdict,
    check_base,
    check_held,
    check_ownership,
    check_released,
    check_repetition,
)
from tenure.model.errors import LeaseLost
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery
from tenure.model.update import Effect, Update
from tests.model.explorer.protocol import Bounds, Rules
from tests.model.explorer.world import INVARIANTS


class Hole(NamedTuple):
    name: str
    rules: Rules
    bounds: Bounds
    breaks: str
    steps: int
    """Length of the shortest bad history."""
    story: tuple[str, ...]
    """Parts of its lines, in order."""
    watched: frozenset[str] = INVARIANTS


def _without(*checks: Check) -> tuple[Check, ...]:
    return tuple(check for check in CHECKS if check not in checks)


def _fence_alone(
    run: RunSnapshot, update: Update, effect: Effect, circumstances: Circumstances
) -> Verdict | None:
    if update.lease is not None and update.lease.fence != run.fence:
        raise LeaseLost(run.run_id, fence=run.fence, owner_id=run.owner_id)
    return None


_REPETITION_FIRST = (check_repetition, *_without(check_repetition))
_FENCE_ALONE = (_fence_alone, *_without(check_ownership, check_released))
_INTERRUPT = Bounds(recovery=Recovery.INTERRUPT)
_NO_CANCEL = Bounds(cancels=0)

HOLES: tuple[Hole, ...] = (
    Hole(
        "1-repetition-before-fence",
        Rules(checks=_REPETITION_FIRST),
        _NO_CANCEL,
        "I5",
        6,
        (
            "worker-a sends intent(v2) -> applied, v3, answer lost",
            "the lease of worker-a expires",
            "worker-b sends claim",
            "worker-a sends intent(v2) again -> ok",
        ),
    ),
    Hole(
        "2-fence-alone-after-release",
        Rules(checks=_FENCE_ALONE),
        Bounds(cancels=0, drains=1),
        "I5",
        5,
        (
            "worker-a sends release -> applied, v3",
            "intent(v2) again -> VersionConflict",
            "worker-a sends intent(v3) -> applied, v4",
        ),
    ),
    Hole(
        "2-fence-alone-after-failover",
        Rules(checks=_FENCE_ALONE),
        Bounds(cancels=0, faults=0, failovers=1),
        "I5",
        8,
        (
            "worker-b sends claim -> applied, v3",
            "a failover forgets the newest claim",
            "worker-a sends claim -> applied, v3",
            "worker-b sends intent(v3) -> applied",
        ),
        watched=frozenset({"I5"}),  # a failover may lose acknowledged work; it must not lose this
    ),
    Hole(
        "3-outside-end-leaves-fence",
        Rules(outside_end_raises_fence=False),
        Bounds(),
        "I5",
        6,
        (
            "worker-a sends intent(v2) -> applied, v3, answer lost",
            "operator sends cancel -> applied, v4, canceled",
            "worker-a sends intent(v2) again -> ok",
        ),
    ),
    Hole(
        "4-death-concluded-from-a-read",
        Rules(reconcile_by_claim=False, checks=_without(check_held)),
        _INTERRUPT,
        "I8",
        6,
        (
            "reconciler reads v1: lease expired",
            "worker-a renews -> ok",
            "reconciler sends interrupt-by-read(v1) -> applied, v2, interrupted",
        ),
    ),
    Hole(
        "5-torn-claim",
        Rules(claim_then_read=False),
        Bounds(tasks=2, cancels=0),
        "I3",
        9,
        (
            "worker-b's claim statement begins",
            "worker-a sends result(v3) again -> applied, v4",
            "worker-b sends claim -> applied, v5",
            "worker-b sends rerun(v5) -> applied, v6; it starts task 0",
        ),
    ),
    Hole(
        "6-cancel-with-a-base-starves",
        Rules(operator_any_base=False),
        Bounds(tasks=2),
        "heard",
        6,
        (
            "operator sends cancel(v1) -> VersionConflict",
            "operator reads v2",
            "worker-a sends intent(v2) -> applied",
            "operator sends cancel(v2) -> VersionConflict",
        ),
    ),
    Hole(
        "6-owner-cannot-rebase",
        Rules(owner_rebases=False),
        Bounds(),
        "I8",
        3,
        (
            "operator sends cancel -> applied, v3",
            "worker-a sends intent(v2) -> VersionConflict",
        ),
    ),
    Hole(
        "7-cancel-as-two-calls",
        Rules(one_call_cancel=False),
        Bounds(drains=1),
        "heard",
        4,
        (
            "operator sends end-as-canceled -> LeaseHeld",
            "worker-a sends release",
            "operator sends ask-to-cancel -> applied, v4",
        ),
    ),
    Hole(
        "12-claim-forgets-its-id",
        Rules(claim_memory=False),
        Bounds(),
        "known",
        2,
        (
            "worker-a sends claim -> applied, v2, answer lost",
            "worker-a sends claim again -> nothing to claim",
        ),
    ),
    Hole(
        "13-first-back-takes-everything",
        Rules(wait_after_outage=False),
        Bounds(outages=1),
        "I8",
        6,
        (
            "the store goes away",
            "the lease of worker-a expires",
            "the store comes back",
            "worker-b sends claim -> applied",
        ),
    ),
    Hole(
        "14-no-op-raises-version",
        Rules(noop_writes_nothing=False),
        Bounds(),
        "I2",
        2,
        (
            "operator sends cancel -> applied, v2, canceled, answer lost",
            "operator sends cancel again -> applied, v3",
        ),
    ),
)

# Rules of ownership that are not in the table. They also show that the alarms of I4
# and I6, which no hole of the table rings, do ring.
BESIDE_THE_TABLE: tuple[Hole, ...] = (
    Hole(
        "repeated-create-ignores-owner",
        Rules(create_checks_owner=False),
        _INTERRUPT,
        "I5",
        4,
        (
            "worker-a sends create -> applied, v1, answer lost",
            "reconciler sends claim -> applied, v2",
            "worker-a sends create again -> ok",
        ),
    ),
    Hole(
        "no-trust-window",
        Rules(trust_window=False),
        _NO_CANCEL,
        "I4",
        6,
        (
            "worker-a sends intent(v2) -> applied, v3; it starts task 0",
            "worker-b sends rerun(v4) -> applied, v5; it starts task 0",
        ),
    ),
    Hole(
        "trust-from-the-second-sending",
        Rules(trust_from_first_sending=False),
        Bounds(cancels=0, silences=0),
        "I4",
        6,
        (
            "worker-a sends claim -> applied, v2, answer lost",
            "worker-a sends claim again -> ok",
            "the lease of worker-a expires",
            "worker-b sends rerun(v4) -> applied, v5; it starts task 0",
        ),
        watched=frozenset({"I4"}),  # I8 breaks a step earlier: the claim that overlaps is false
    ),
    Hole(
        "no-base-check",
        Rules(checks=_without(check_base)),
        Bounds(),
        "I6",
        3,
        (
            "operator sends cancel -> applied, v3",
            "worker-a sends intent(v2) -> applied, v4",
        ),
    ),
    Hole(
        "no-repetition-check",
        Rules(checks=_without(check_repetition)),
        Bounds(tasks=2),
        "I8",
        5,
        (
            "result(v3) -> applied, v4, answer lost",
            "worker-a sends result(v3) again -> VersionConflict",
            "worker-a sends result(v4) -> InvalidTransition",
        ),
    ),
)
