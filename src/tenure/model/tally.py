"""How many steps and hosts have got how far, counted along as they move."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from tenure.model.snapshot import Counts
from tenure.model.status import HostStatus, StepStatus

_Status = TypeVar("_Status", StepStatus, HostStatus)


class Tally(Struct, gc=False):
    """Counts of what was reached, moved along as statuses move. Pending is not counted."""

    steps: dict[StepStatus, int]
    hosts: dict[HostStatus, int]
    steps_total: int
    hosts_total: int

    @classmethod
    def of(cls, counts: Counts) -> Tally:
        return cls(counts.steps.copy(), counts.hosts.copy(), counts.steps_total, counts.hosts_total)

    def counts(self) -> Counts:
        return Counts(
            steps=self.steps,
            hosts=self.hosts,
            steps_total=self.steps_total,
            hosts_total=self.hosts_total,
        )


def move(counts: dict[_Status, int], old: _Status, new: _Status) -> None:
    """One less is ``old``, if those are counted, and one more is ``new``."""
    if old is new:
        return
    left = counts.get(old)
    if left == 1:
        del counts[old]
    elif left is not None:
        counts[old] = left - 1
    counts[new] = counts[new] + 1 if new in counts else 1
