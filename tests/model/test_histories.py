"""The protocol holds in every history within the bounds, and every rule in it is needed; no random
walk of writes breaks a rule."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.decide import Circumstances, apply
from tenure.model.errors import Refused
from tenure.model.leases import claim
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import Effect, Fencing, HostChange, StepChange
from tests.model.explorer.holes import BESIDE_THE_TABLE, HOLES, Hole
from tests.model.explorer.protocol import Bounds, Rules
from tests.model.explorer.search import Explored, explore
from tests.model.samples import (
    ALICE,
    AT,
    BOB,
    after,
    as_bytes,
    by_operator,
    by_owner,
    effect,
    owned,
    statuses,
)

RESUME, INTERRUPT = Recovery.RESUME, Recovery.INTERRUPT
NORMAL = {
    "takeover": Bounds(RESUME, tasks=2),
    "takeover-two-faults": Bounds(RESUME, faults=2),
    "takeover-drain": Bounds(RESUME, drains=1),
    "takeover-outage": Bounds(RESUME, outages=1),
    "reconcile": Bounds(INTERRUPT, tasks=2, faults=2),
    "reconcile-drain": Bounds(INTERRUPT, drains=1),
    "reconcile-outage": Bounds(INTERRUPT, outages=1),
}
DEEP = {
    "takeover": Bounds(RESUME, tasks=2, faults=2, silences=2),
    "takeover-three-faults": Bounds(RESUME, faults=3),
    "reconcile": Bounds(INTERRUPT, tasks=2, faults=2, silences=2, drains=1),
    "reconcile-outage": Bounds(INTERRUPT, tasks=2, faults=2, silences=2, outages=1),
}


def _holds(explored: Explored) -> None:
    assert explored.violation is None, f"\n{explored}"
    assert explored.complete
    print(explored)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", NORMAL.values(), ids=NORMAL.keys())
def test_no_history_breaks_an_invariant(bounds: Bounds) -> None:
    explored = explore(Rules(), bounds)
    _holds(explored)
    assert _ends_to_expect(bounds) <= explored.ends


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("bounds", DEEP.values(), ids=DEEP.keys())
def test_no_longer_history_breaks_an_invariant(bounds: Bounds) -> None:
    explored = explore(Rules(), bounds)
    _holds(explored)
    assert _ends_to_expect(bounds) <= explored.ends


def _ends_to_expect(bounds: Bounds) -> set[tuple[str, int]]:
    """A search that never saw these would prove little."""
    if bounds.recovery is RESUME:
        return {("success", 0), ("success", 1), ("canceled", 0), ("canceled", 1)}
    return {("success", 0), ("canceled", 0), ("interrupted", 1)}


@pytest.mark.slow
def test_a_failover_that_forgets_a_claim_lets_no_former_owner_write() -> None:
    """It may lose acknowledged work, so only I5 can be asked for: fence and owner together."""
    _holds(explore(Rules(), Bounds(cancels=0, failovers=1), watched={"I5"}))


def _by_name(hole: Hole) -> str:
    return hole.name


@pytest.mark.slow
@pytest.mark.parametrize("hole", [*HOLES, *BESIDE_THE_TABLE], ids=_by_name)
def test_a_rule_switched_off_is_missed(hole: Hole) -> None:
    explored = explore(hole.rules, hole.bounds, watched=hole.watched)
    assert explored.violation is not None, f"{hole.name}: {explored}"
    print(explored)
    assert explored.violation.invariant == hole.breaks, f"\n{explored}"
    assert len(explored.history) == hole.steps, f"\n{explored}"
    lines = iter(explored.history)
    for part in hole.story:
        assert any(part in line for line in lines), f"no {part!r} in its place in\n{explored}"


@pytest.mark.slow
@pytest.mark.parametrize("hole", [*HOLES, *BESIDE_THE_TABLE], ids=_by_name)
def test_the_same_world_with_the_rule_on_is_safe_that_far(hole: Hole) -> None:
    """It is the rule that makes the difference, not the bounds."""
    explored = explore(Rules(), hole.bounds, watched=hole.watched, max_depth=hole.steps + 2)
    assert explored.violation is None, f"\n{explored}"


# Starts are drawn more often than the rest: a walk that starts nothing proves little.
_hosts = st.dictionaries(
    st.sampled_from(["web1", "web2"]),
    st.builds(HostChange, status=st.sampled_from([HostStatus.RUNNING] * 6 + list(HostStatus))),
    max_size=2,
)
_steps = st.dictionaries(
    st.integers(0, 1),
    st.one_of(
        st.builds(StepChange, hosts=_hosts),
        st.builds(StepChange, status=st.just(StepStatus.RUNNING), hosts=_hosts),
        st.builds(StepChange, status=st.sampled_from(StepStatus), hosts=_hosts),
    ),
    max_size=2,
)
_moves = st.tuples(
    st.sampled_from(["owner", "owner", "owner", "late owner", "operator", "claim"]),
    st.one_of(st.none(), st.none(), st.none(), st.sampled_from(RunStatus)),
    _steps,
    st.booleans(),
)


def _move(run: RunSnapshot, who: str, what: Effect, live: bool, at: float) -> RunSnapshot:
    if who == "claim":
        return claim(run, BOB, at=after(at), lease_live=live).snapshot
    if who == "operator":
        update = by_operator(run, what)
    else:
        stale = who == "late owner"
        lease = Fencing(run.owner_id or ALICE, run.fence - stale)
        update = by_owner(run, what, lease=lease)
    return apply(run, update, at=after(at), circumstances=Circumstances(lease_live=live)).snapshot


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(_moves, max_size=25), st.lists(st.floats(-50, 50), min_size=25, max_size=25))
def test_no_walk_breaks_a_rule(moves: list[Any], clock: list[float]) -> None:
    run = owned(recovery=Recovery.RESUME)
    for (who, status, steps, live), at in zip(moves, clock, strict=False):
        before = as_bytes(run)
        try:
            after_it = _move(run, who, effect(run=status, steps=steps), live, at)
        except Refused:
            assert as_bytes(run) == before
            continue
        assert as_bytes(run) == before
        _check_step_of_walk(run, after_it, who)
        run = after_it


def _check_step_of_walk(old: RunSnapshot, new: RunSnapshot, who: str) -> None:
    assert who != "late owner", "a write under a lower fence was accepted"
    if new is old:
        return
    assert new.version == old.version + 1
    assert new.fence in (old.fence, old.fence + 1)
    assert (new.updated_at or AT) >= (old.updated_at or AT)
    if old.ended:
        assert (new.status, new.steps, new.finished_at) == (old.status, old.steps, old.finished_at)
    if not new.ended:
        reached = Counter(step.status for step in new.steps)
        del reached[StepStatus.PENDING]
        assert new.counts.steps == reached
    else:
        assert not {"pending", "running"} & set(statuses(new))
        assert new.owner_id is None
        assert (new.finished_at is not None) is True
    hosts = Counter(host.status for step in new.steps for host in step.hosts.values())
    for sure in (HostStatus.SUCCESS, HostStatus.FAILED, HostStatus.RUNNING, HostStatus.UNKNOWN):
        assert new.counts.hosts.get(sure, 0) == hosts[sure]
    assert sum(new.counts.hosts.values()) <= new.counts.hosts_total
