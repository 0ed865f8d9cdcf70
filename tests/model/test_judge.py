"""The order of the checks: where two would answer, the earlier one does."""

from __future__ import annotations

from itertools import pairwise, product
from typing import NamedTuple

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tenure.model import decide
from tenure.model.decide import CHECKS, Check, Circumstances, Verdict, apply, choose_effect
from tenure.model.errors import (
    LeaseHeld,
    LeaseLost,
    Refused,
    StoreRejected,
    VersionConflict,
)
from tenure.model.leases import claim
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.model.update import Changes, Effect, Fencing, RunChange, StepChange, Update
from tests.model.samples import (
    ALICE,
    AT,
    BOB,
    LIVE,
    after,
    as_bytes,
    at_status,
    by_operator,
    by_owner,
    effect,
    running,
)

RUN = running(steps=0, recovery=Recovery.RESUME)
"""Alice's, version 3, fence 1."""
TAKEN = claim(RUN, BOB, at=after(60), lease_live=False).snapshot
"""Bob's since, version 4, fence 2."""
RELEASED = replace(RUN, owner_id=None)
SUCCEEDED = at_status("success", version=9)
END = effect(run=RunStatus.SUCCESS)
BACK = effect(run=RunStatus.QUEUED)
SENT_BEFORE = Circumstances(applied_id="mine")


class Situation(NamedTuple):
    earlier: Check
    later: Check
    run: RunSnapshot
    update: Update
    circumstances: Circumstances
    answer: str
    swapped: str


def _mine(run: RunSnapshot, base: int, status: RunStatus = RunStatus.SUCCESS) -> Update:
    return by_owner(run, effect(run=status), update_id="mine", base_version=base)


SITUATIONS = {
    "a lost owner repeats an applied update": Situation(
        decide.check_ownership,
        decide.check_repetition,
        TAKEN,
        replace(_mine(TAKEN, 2), lease=Fencing(ALICE, 1)),
        SENT_BEFORE,
        "LeaseLost",
        "again 3",
    ),
    "the last owner repeats the update that ended the run": Situation(
        decide.check_repetition,
        decide.check_same_end,
        SUCCEEDED,
        _mine(SUCCEEDED, 4),
        SENT_BEFORE,
        "again 5",
        "again 9",
    ),
    "the last owner ends the run the same way, anew": Situation(
        decide.check_same_end,
        decide.check_released,
        SUCCEEDED,
        _mine(SUCCEEDED, 9),
        Circumstances(),
        "again 9",
        "LeaseLost",
    ),
    "an owner that released writes on an old base": Situation(
        decide.check_released,
        decide.check_base,
        RELEASED,
        _mine(RELEASED, 1),
        Circumstances(),
        "LeaseLost",
        "VersionConflict",
    ),
    "an operator ends an owned run on an old base": Situation(
        decide.check_held,
        decide.check_base,
        RUN,
        by_operator(RUN, END, base_version=1),
        LIVE,
        "LeaseHeld",
        "VersionConflict",
    ),
    "an owner sends an impossible change on an old base": Situation(
        decide.check_base,
        decide.check_transition,
        RUN,
        by_owner(RUN, BACK, base_version=1),
        LIVE,
        "VersionConflict",
        "InvalidTransition",
    ),
    "an operator moves an owned run backwards": Situation(
        decide.check_held,
        decide.check_transition,
        RUN,
        by_operator(RUN, BACK),
        LIVE,
        "LeaseHeld",
        "InvalidTransition",
    ),
    "an owner repeats its end on a base that is stale by now": Situation(
        decide.check_same_end,
        decide.check_base,
        SUCCEEDED,
        by_operator(SUCCEEDED, END, base_version=2),
        Circumstances(),
        "again 9",
        "VersionConflict",
    ),
    "a lost owner sends what no longer fits": Situation(
        decide.check_ownership,
        decide.check_base,
        TAKEN,
        by_owner(TAKEN, END, base_version=3, lease=Fencing(ALICE, 1)),
        LIVE,
        "LeaseLost",
        "VersionConflict",
    ),
    "a lost owner ends the run as it ended": Situation(
        decide.check_ownership,
        decide.check_same_end,
        replace(SUCCEEDED, fence=7),
        by_owner(SUCCEEDED, END),
        Circumstances(),
        "LeaseLost",
        "again 9",
    ),
}


def _answer(situation: Situation, checks: tuple[Check, ...]) -> str:
    run, update, circumstances = situation.run, situation.update, situation.circumstances
    before = as_bytes(run)
    try:
        applied = apply(run, update, at=after(99), circumstances=circumstances, checks=checks)
    except Refused as refusal:
        return type(refusal).__name__
    finally:
        assert as_bytes(run) == before
    return f"{'again' if applied.effect is None else 'written'} {applied.version}"


@pytest.mark.parametrize("story", SITUATIONS)
def test_the_earlier_check_answers(story: str) -> None:
    situation = SITUATIONS[story]
    assert _answer(situation, CHECKS) == situation.answer


@pytest.mark.parametrize("story", SITUATIONS)
def test_in_the_other_order_the_answer_would_differ(story: str) -> None:
    """So the situation really has two candidates, and the test above can fail."""
    situation = SITUATIONS[story]
    swap = {situation.earlier: situation.later, situation.later: situation.earlier}
    wrong = tuple(swap.get(check, check) for check in CHECKS)
    assert wrong != CHECKS
    assert _answer(situation, wrong) == situation.swapped


def test_every_adjacent_pair_that_can_meet_has_a_situation() -> None:
    told = {(s.earlier, s.later) for s in SITUATIONS.values()}
    adjacent = set(pairwise(CHECKS))
    # "released" speaks to owners, "held" to operators: no update meets both.
    assert adjacent - told == {(decide.check_released, decide.check_held)}


@pytest.mark.parametrize(
    ("lease", "accepted"),
    [
        (Fencing(ALICE, 1), True),
        (Fencing(ALICE, 0), False),
        (Fencing(ALICE, 2), False),
        (Fencing(BOB, 1), False),
        (Fencing(BOB, 2), False),
    ],
)
def test_fence_and_owner_must_both_match(lease: Fencing, accepted: bool) -> None:
    update = by_owner(RUN, END, lease=lease)
    if accepted:
        assert apply(RUN, update, at=AT).version == 4
        return
    with pytest.raises(LeaseLost) as lost:
        apply(RUN, update, at=AT, circumstances=LIVE)
    assert (lost.value.fence, lost.value.owner_id, lost.value.run_id) == (1, ALICE, RUN.run_id)


def test_a_released_run_answers_a_repetition_of_its_last_owner() -> None:
    update = by_owner(RELEASED, END, base_version=2, update_id="mine")
    answer = apply(RELEASED, update, at=AT, circumstances=SENT_BEFORE)
    assert (answer.effect, answer.version, answer.snapshot) == (None, 3, RELEASED)


@pytest.mark.parametrize("base", [0, 1, 2, 4, 99])
def test_any_other_base_is_a_conflict_that_carries_what_a_rebase_needs(base: int) -> None:
    run = replace(RUN, cancel_requested_at=AT)
    with pytest.raises(VersionConflict) as conflict:
        apply(run, by_owner(run, END, base_version=base), at=AT)
    error = conflict.value
    assert (error.version, error.fence, error.status, error.cancel_requested_at) == (
        3,
        1,
        RunStatus.RUNNING,
        AT,
    )


def test_an_update_id_counts_only_on_a_stale_base() -> None:
    """The row after the base is the only place where an applied update can be."""
    update = by_owner(RUN, END, update_id="mine")
    assert apply(RUN, update, at=AT, circumstances=SENT_BEFORE).effect is not None


def test_an_operator_may_not_end_a_run_somebody_holds() -> None:
    with pytest.raises(LeaseHeld) as held:
        apply(RUN, by_operator(RUN, END, base_version=None), at=AT, circumstances=LIVE)
    assert (held.value.owner_id, held.value.expires_at) == (ALICE, LIVE.lease_expires_at)


def test_an_operator_may_end_a_run_whose_lease_expired_and_raises_the_fence() -> None:
    ended = apply(RUN, by_operator(RUN, effect(run=RunStatus.CANCELED)), at=AT).snapshot
    assert (ended.status, ended.fence, ended.owner_id) == (RunStatus.CANCELED, 2, None)
    with pytest.raises(LeaseLost):
        apply(ended, by_owner(RUN, END), at=AT)


def test_if_unowned_is_chosen_only_for_a_live_run_nobody_holds() -> None:
    ask, end = effect(message="ask"), effect(run=RunStatus.CANCELED)
    update = by_operator(RUN, ask, if_unowned=end)
    assert choose_effect(RUN, update, lease_live=False) is end
    assert choose_effect(RUN, update, lease_live=True) is ask
    assert choose_effect(SUCCEEDED, update, lease_live=False) is ask
    assert choose_effect(RUN, by_operator(RUN, ask), lease_live=False) is ask


def test_ill_formed_updates_are_rejected_before_anything_is_judged() -> None:
    with pytest.raises(StoreRejected, match="base_version"):
        apply(RUN, by_owner(RUN, END, base_version=None), at=AT)
    with pytest.raises(StoreRejected, match="release"):
        apply(RUN, by_operator(RUN, END, release=True), at=AT)


# -- the shortcut for the common case --------------------------------------------------------------


def verdict_of(run: RunSnapshot, update: Update, live: bool, checks: tuple[Check, ...]) -> object:
    chosen = choose_effect(run, update, live)
    try:
        return decide.judge(run, update, chosen, Circumstances(live, "u1"), checks)
    except Refused as refusal:
        return type(refusal)


def test_the_shortcut_answers_as_all_checks_would() -> None:
    """Every combination of what the checks look at, judged with and without the shortcut."""
    one_by_one = (*CHECKS,)
    assert one_by_one is not CHECKS
    shortcuts = 0
    for status, owner, base, lease, wanted, steps, live in product(
        RunStatus,
        (None, ALICE),
        (None, 4, 5, 6),
        (None, Fencing(ALICE, 3), Fencing(ALICE, 2), Fencing(BOB, 3)),
        (UNSET, *RunStatus),
        ({}, {0: StepChange()}),
        (False, True),
    ):
        run = replace(RUN, status=status, owner_id=owner, fence=3, version=5)
        changes = Changes(run=RunChange(status=wanted), steps=steps)
        update = Update(
            run_id=run.run_id,
            update_id="u1",
            base_version=base,
            lease=lease,
            effect=Effect(changes=changes),
        )
        slow = verdict_of(run, update, live, one_by_one)
        assert verdict_of(run, update, live, CHECKS) == slow
        shortcuts += slow is Verdict.WRITE
    assert shortcuts > 50
