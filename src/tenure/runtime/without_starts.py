"""What of an update may be written by an owner that no longer trusts its lease.

What its tasks came to: that is true whoever has the run next, and nobody else knows it. Not that
something starts: it will not start here, and whoever goes on would have to wonder whether it did.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import NO_RUN_CHANGE, Changes, HostChange, StepChange

_NOTHING = StepChange()


def without_starts(changes: Changes) -> Changes:
    """``changes`` itself if nothing starts in it."""
    steps = {index: _ended(change) for index, change in changes.steps.items()}
    if steps == changes.steps:
        return changes
    steps = {index: change for index, change in steps.items() if change != _NOTHING}
    begins = not steps and changes.run.status is RunStatus.RUNNING
    return Changes(run=NO_RUN_CHANGE if begins else changes.run, steps=steps)


def _ended(step: StepChange) -> StepChange:
    hosts = {
        name: left for name, host in step.hosts.items() if (left := _of_host(host)) is not None
    }
    if step.status is StepStatus.RUNNING and not hosts:
        return StepChange(plan=step.plan)
    return replace(step, hosts=hosts)


def _of_host(host: HostChange) -> HostChange | None:
    if host.status is HostStatus.RUNNING:
        return None
    items = {
        position: item
        for position, item in host.items.items()
        if item.status is not HostStatus.RUNNING
    }
    if host.items and not items and replace(host, items={}) == HostChange():
        return None
    return replace(host, items=items)
