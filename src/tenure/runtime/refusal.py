"""What is said of a run that cannot go on: the store can never hold a result of it, or its engine
itself has failed."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from tenure.model.errors import Refused
from tenure.model.snapshot import ErrorInfo
from tenure.model.status import ENDED_HOST, HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, RunChange, StepChange
from tenure.runtime.unfolding import Start

_CANCELED = HostChange(status=HostStatus.CANCELED, message="canceled: its run failed")


def failed_by_refusal(refusal: Refused, refused: Changes, ended: Iterable[Start]) -> Changes:
    """Hosts whose result was in the ``refused`` changes fail with the run; those whose task was
    ``ended`` for it are canceled. Of steps that would have begun there is nothing to say."""
    message = f"the store refused a result: {refusal}"
    hosts: dict[int, dict[str, HostChange]] = {}
    for index, step in refused.steps.items():
        if step.status is StepStatus.RUNNING or step.plan is not None:
            continue
        for name, said in step.hosts.items():
            if _has_ended(said) or any(map(_has_ended, said.items.values())):
                hosts.setdefault(index, {})[name] = _failed(said, message)
    culprit = next((name for failed in hosts.values() for name in failed), None)
    return _failed_run(ErrorInfo(kind="rejected", message=message, host=culprit), hosts, ended)


def failed_inside(error: Exception, ended: Iterable[Start]) -> Changes:
    """Not the workflow's fault: the record shall not say that it runs for ever."""
    message = f"the engine failed: {type(error).__name__}: {error}"[:2000]
    return _failed_run(ErrorInfo(kind="internal", message=message), {}, ended)


def _failed_run(
    error: ErrorInfo, hosts: dict[int, dict[str, HostChange]], ended: Iterable[Start]
) -> Changes:
    for course, host, _ in ended:
        hosts.setdefault(course.index, {}).setdefault(host, _CANCELED)
    return Changes(
        run=RunChange(
            status=RunStatus.FAILED, message=error.message, error=error, last_error=error
        ),
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
