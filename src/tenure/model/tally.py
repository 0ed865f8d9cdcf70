"""How many steps and hosts have got how far, counted along as they move."""

from __future__ import annotations

from typing import TypeVar

from tenure.model.snapshot import Counts
from tenure.model.status import ENDED_HOST, HostStatus, StepStatus

# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_HOST_PENDING = HostStatus.PENDING
_STEP_PENDING = StepStatus.PENDING


class Tally:
    """Counts of what was reached, moved along as statuses move."""

    def __init__(self, counts: Counts) -> None:
        self.steps = counts.steps.copy()
        self.hosts = counts.hosts.copy()
        self.steps_total = counts.steps_total
        self.hosts_total = counts.hosts_total
        self.host_finished = False

    def step(self, old: StepStatus, new: StepStatus) -> None:
        _move(self.steps, None if old == _STEP_PENDING else old, new)

    def host(self, old: HostStatus, new: HostStatus) -> None:
        if old != new:
            _move(self.hosts, None if old == _HOST_PENDING else old, new)
            if new in ENDED_HOST:
                self.host_finished = True

    def counts(self) -> Counts:
        return Counts(
            steps=self.steps,
            hosts=self.hosts,
            steps_total=self.steps_total,
            hosts_total=self.hosts_total,
        )


_Key = TypeVar("_Key")


def _move(counts: dict[_Key, int], old: _Key | None, new: _Key) -> None:
    """Pending is not counted: nothing is taken away for it."""
    if old is not None:
        left = counts[old] - 1
        if left:
            counts[old] = left
        else:
            del counts[old]
    counts[new] = counts.get(new, 0) + 1
