"""What happened between two readings of a run, where the store keeps no journal of it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tenure.model.events import Event, RecordedEvent, record
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import RunStatus, StepStatus


def as_planned(run: RunSnapshot) -> RunSnapshot:
    """As it was before anything happened."""
    steps = tuple(
        StepState(
            index=step.index,
            name=step.name,
            kind=step.kind,
            action=step.action,
            notified_by=step.notified_by,
            hosts=dict.fromkeys(step.hosts, HostState()),
        )
        for step in run.steps
    )
    return replace(run, status=RunStatus.QUEUED, steps=steps)


def changes_between(old: RunSnapshot, new: RunSnapshot) -> Iterator[RecordedEvent]:
    """As events, in the order a journal would have them. A status that came and went in between is
    missed: nobody kept it."""
    events = list(_step_changes(old, new))
    if old.status is not new.status:
        said = Event(
            type=f"run.{new.status}", status=new.status, message=new.message, error=new.error
        )
        events.insert(0 if new.status is RunStatus.RUNNING else len(events), said)
    if new.updated_at is None:
        return
    for seq, event in enumerate(events):
        yield record(
            event,
            run_id=new.run_id,
            version=new.version,
            seq=seq,
            at=new.updated_at,
            fence=new.fence,
        )


def _step_changes(old: RunSnapshot, new: RunSnapshot) -> Iterator[Event]:
    known = {step.index: step for step in old.steps}
    for step in new.steps:
        before = known.get(step.index) or StepState(index=step.index)
        moved = step.status is not before.status
        starts = step.status is StepStatus.RUNNING
        if moved and starts:
            yield _said(step, "step", step.status, step.message)
        for name, host in step.hosts.items():
            if host.status is not before.hosts.get(name, HostState()).status:
                yield _said(step, "host", host.status, host.message, host=name)
        if moved and not starts:
            yield _said(step, "step", step.status, step.message)


def _said(
    step: StepState, kind: str, status: str, message: str | None, host: str | None = None
) -> Event:
    return Event(
        type=f"{kind}.{status}",
        status=status,
        step=step.name,
        step_index=step.index,
        host=host,
        message=message,
    )
