"""The first changes of a run, as far as they can be part of its birth.

A run is born with what starts at once already running, so that it costs no update of its own and is
never up for grabs. What ends without starting (a step its condition skips) cannot be born: it
follows in the first update.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot
from tenure.model.status import HostStatus, StepStatus
from tenure.model.update import Changes, HostChange, StepChange

_STARTED = HostState(status=HostStatus.RUNNING, attempts=1)


def with_intents(planned: RunSnapshot, changes: Changes) -> RunSnapshot:
    """The planned run with what starts at once already running."""
    steps = list(planned.steps)
    for index, change in changes.steps.items():
        if change.status is not StepStatus.RUNNING:
            continue
        hosts = steps[index].hosts | {
            name: _STARTED
            for name, host in change.hosts.items()
            if host.status is HostStatus.RUNNING
        }
        steps[index] = replace(steps[index], status=change.status, hosts=hosts)
    return replace(planned, steps=tuple(steps))


def not_born(changes: Changes) -> Changes:
    """What of the changes was not part of the birth."""
    left: dict[int, StepChange] = {}
    for index, change in changes.steps.items():
        if change.status is not StepStatus.RUNNING:
            left[index] = change
            continue
        hosts = {
            name: HostChange(items=host.items) if host.status is HostStatus.RUNNING else host
            for name, host in change.hosts.items()
            if host.status is not HostStatus.RUNNING or host.items
        }
        if hosts or change.message is not UNSET:
            left[index] = replace(change, status=UNSET, hosts=hosts)
    return Changes(run=changes.run, steps=left)
