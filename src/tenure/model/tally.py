"""How many steps and hosts have got how far, counted along as they move."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from tenure.model.snapshot import Counts
from tenure.model.status import ENDED_HOST, HostStatus, StepStatus

# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_HOST_PENDING = HostStatus.PENDING
_STEP_PENDING = StepStatus.PENDING


class Tally(Struct, gc=False):
    """Counts of what was reached, moved along as statuses move. Pending is not counted."""

    steps: dict[StepStatus, int]
    hosts: dict[HostStatus, int]
    steps_total: int
    hosts_total: int
    host_finished: bool = False

    @classmethod
    def of(cls, counts: Counts) -> Tally:
        return cls(counts.steps.copy(), counts.hosts.copy(), counts.steps_total, counts.hosts_total)

    def step(self, old: StepStatus, new: StepStatus) -> None:
        if old != _STEP_PENDING:
            _take_away(self.steps, old)
        self.steps[new] = self.steps.get(new, 0) + 1

    def host(self, old: HostStatus, new: HostStatus) -> None:
        if old == new:
            return
        if old != _HOST_PENDING:
            _take_away(self.hosts, old)
        self.hosts[new] = self.hosts.get(new, 0) + 1
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


def _take_away(counts: dict[_Key, int], old: _Key) -> None:
    left = counts[old] - 1
    if left:
        counts[old] = left
    else:
        del counts[old]
