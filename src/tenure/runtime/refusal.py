"""What is said in place of a result that the store can never hold."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from tenure.model.errors import Refused
from tenure.model.snapshot import ErrorInfo
from tenure.model.status import ENDED_HOST, HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, RunChange, StepChange
from tenure.runtime.unfolding import Start


def failed_by(refusal: Refused, refused: Changes, ended: Iterable[Start]) -> Changes:
    """The run fails: hosts whose result was in the ``refused`` changes with it; those whose task
    was ``ended`` for it were canceled. Of steps that would have begun there is nothing to say."""
    message = f"the store refused a result: {refusal}"
    hosts: dict[int, dict[str, HostChange]] = {}
    culprit: tuple[int, str] | None = None
    for index, step in refused.steps.items():
        if step.status is StepStatus.RUNNING or step.plan is not None:
            continue
        for name, said in step.hosts.items():
            if not _has_ended(said) and not any(map(_has_ended, said.items.values())):
                continue
            culprit = culprit or (index, name)
            hosts.setdefault(index, {})[name] = _failed(said, message)
    for course, host, _ in ended:
        canceled = HostChange(status=HostStatus.CANCELED, message="canceled: its run failed")
        hosts.setdefault(course.index, {}).setdefault(host, canceled)
    error = ErrorInfo(kind="rejected", message=message, host=culprit[1] if culprit else None)
    return Changes(
        run=RunChange(status=RunStatus.FAILED, message=message, error=error, last_error=error),
        steps={index: StepChange(hosts=each) for index, each in hosts.items()},
    )


def _has_ended(change: ItemChange) -> bool:
    return change.status is not UNSET and change.status in ENDED_HOST


def _failed(said: HostChange, message: str) -> HostChange:
    items = {
        position: ItemChange(status=HostStatus.FAILED, message=message)
        for position, item in said.items.items()
        if _has_ended(item)
    }
    return HostChange(status=HostStatus.FAILED, message=message, items=items)
