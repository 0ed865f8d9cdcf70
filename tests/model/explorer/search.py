"""Breadth first, so that the first violation found has a shortest history."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tests.model.explorer.invariants import INVARIANTS, Violation
from tests.model.explorer.moves import Moves
from tests.model.explorer.rules import Bounds, Rules
from tests.model.explorer.world import World, first_world


class Explored(NamedTuple):
    states: int
    moves: int
    depth: int
    """Steps of the longest shortest way to any state."""
    complete: bool
    """Every state within the bounds was visited."""
    violation: Violation | None = None
    history: tuple[str, ...] = ()
    ends: frozenset[tuple[str, int]] = frozenset()
    """Every end that was reached, with the number of takeovers before it."""

    def __str__(self) -> str:
        size = f"{self.states} states, {self.moves} moves, depth {self.depth}"
        if self.violation is None:
            return f"no violation in {size}" + ("" if self.complete else " (cut off)")
        lines = [f"{number}. {line}" for number, line in enumerate(self.history, start=1)]
        verdict = f"=> breaks {self.violation.invariant}: {self.violation.sentence}"
        return "\n".join([*lines, verdict, f"({size})"])


def explore(
    rules: Rules = Rules(),
    bounds: Bounds = Bounds(),
    *,
    watched: Collection[str] = INVARIANTS,
    max_depth: int = 200,
) -> Explored:
    """Every history within ``bounds``, until one breaks a watched invariant."""
    moves_of = Moves(rules, bounds).of
    start = first_world(rules, bounds)
    came: dict[World, tuple[World, str] | None] = {start: None}
    frontier, moves, depth = [start], 0, 0
    while frontier and depth < max_depth:
        depth += 1
        following: list[World] = []
        for world in frontier:
            for line, after, violation in moves_of(world):
                moves += 1
                if violation is not None and violation.invariant in watched:
                    history = (*_way_to(world, came), line)
                    return Explored(len(came), moves, depth, False, violation, history)
                if after not in came:
                    came[after] = (world, line)
                    following.append(after)
        frontier = following
    return Explored(len(came), moves, depth - 1, not frontier, ends=_ends(came))


def _ends(worlds: Iterable[World]) -> frozenset[tuple[str, int]]:
    runs = (world.store.run for world in worlds)
    return frozenset((str(run.status), run.takeovers) for run in runs if run and run.ended)


def _way_to(world: World, came: dict[World, tuple[World, str] | None]) -> tuple[str, ...]:
    lines: list[str] = []
    step = came[world]
    while step is not None:
        world, line = step
        lines.append(line)
        step = came[world]
    return tuple(reversed(lines))
