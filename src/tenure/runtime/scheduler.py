"""Which steps may begin now: a pure choice."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tenure.workflow.plan import PlannedStep


class Order(Struct, frozen=True):
    """Who waits for whom; the same for each run of a plan."""

    needs: tuple[int, ...]
    """For how many steps each one waits."""
    followers: tuple[tuple[int, ...], ...]
    """Which steps wait for each one."""
    first: tuple[int, ...]
    """Those that wait for none."""


def order_of(steps: Sequence[PlannedStep]) -> Order:
    followers: list[list[int]] = [[] for _ in steps]
    for step in steps:
        for needed in step.needs:
            followers[needed].append(step.index)
    return Order(
        tuple(len(step.needs) for step in steps),
        tuple(tuple(waiting) for waiting in followers),
        tuple(step.index for step in steps if not step.needs),
    )


class Schedule:
    """A step may begin when all it needs have ended: well, skipped, or failed where the run goes
    on nevertheless."""

    __slots__ = ("_followers", "_missing", "left", "ready")

    def __init__(self, order: Order) -> None:
        self._missing = list(order.needs)
        self._followers = order.followers
        self.ready = list(order.first)
        """May begin, and have not been taken."""
        self.left = len(self._missing)
        """Steps that have not begun."""

    def take_ready(self) -> list[int]:
        """In the order of the file."""
        ready, self.ready = self.ready, []
        self.left -= len(ready)
        return ready if len(ready) < 2 else sorted(ready)

    def ended(self, index: int) -> None:
        for follower in self._followers[index]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self.ready.append(follower)
