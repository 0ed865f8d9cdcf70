"""The protocol holds in every history within the bounds, and every rule in it is needed."""

from __future__ import annotations

import pytest

from tenure.model.status import Recovery
from tests.model.explorer.holes import BESIDE_THE_TABLE, HOLES, Hole
from tests.model.explorer.rules import Bounds, Rules
from tests.model.explorer.search import Explored, explore

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("bounds", NORMAL.values(), ids=NORMAL.keys())
def test_no_history_breaks_an_invariant(bounds: Bounds) -> None:
    explored = explore(Rules(), bounds)
    _holds(explored)
    assert _ends_to_expect(bounds) <= explored.ends


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


def test_a_failover_that_forgets_a_claim_lets_no_former_owner_write() -> None:
    """It may lose acknowledged work, so only I5 can be asked for: fence and owner together."""
    _holds(explore(Rules(), Bounds(cancels=0, failovers=1), watched={"I5"}))


def _by_name(hole: Hole) -> str:
    return hole.name


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


@pytest.mark.parametrize("hole", [*HOLES, *BESIDE_THE_TABLE], ids=_by_name)
def test_the_same_world_with_the_rule_on_is_safe_that_far(hole: Hole) -> None:
    """It is the rule that makes the difference, not the bounds."""
    explored = explore(Rules(), hole.bounds, watched=hole.watched, max_depth=hole.steps + 2)
    assert explored.violation is None, f"\n{explored}"


def test_a_history_reads_as_numbered_lines() -> None:
    (hole,) = (hole for hole in HOLES if hole.name.startswith("12-"))
    assert str(explore(hole.rules, hole.bounds)).splitlines()[:3] == [
        "1. worker-a sends claim -> applied, v2, answer lost or late",
        "2. worker-a sends claim again -> nothing to claim",
        "=> breaks known: worker-a holds the run and was told that it has nothing",
    ]
