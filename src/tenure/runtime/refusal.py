"""What is said of a run that cannot go on: the store can never hold a result of it, or its engine
itself has failed."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from tenure.model.errors import Refused
from tenure.model.snapshot import ErrorInfo
from tenure.model.status import ENDED_HOST, HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, RunChange, StepChange
from tenure.ports.masking import Masking
from tenure.runtime.crew import Result
from tenure.runtime.draft import told
from tenure.runtime.executor import Outcome
from tenure.runtime.stop import RUN_FAILED
from tenure.runtime.unfolding import Start


def failed_by_refusal(
    refusal: Refused, refused: Changes, results: Iterable[Result], masks: Masking
) -> Changes:
    """Hosts whose result was in the ``refused`` changes fail with the run. ``results`` are those of
    other hosts, most of them ended for it. Of steps that would have begun there is nothing to say.
    """
    message = masks.text(f"the store refused a result: {refusal}")
    hosts: dict[int, dict[str, HostChange]] = {}
    for index, step in refused.steps.items():
        if step.status is StepStatus.RUNNING or step.plan is not None:
            continue
        for name, said in step.hosts.items():
            if _has_ended(said) or any(map(_has_ended, said.items.values())):
                hosts.setdefault(index, {})[name] = _failed(said, message)
    culprit = next((name for failed in hosts.values() for name in failed), None)
    return _failed_run(ErrorInfo(kind="rejected", message=message, host=culprit), hosts, results)


def failed_inside(error: Exception, results: Iterable[Result], masks: Masking) -> Changes:
    """Not the workflow's fault: the record shall not say that it runs for ever."""
    message = masks.text(f"the engine failed: {type(error).__name__}: {error}")[:2000]
    return _failed_run(ErrorInfo(kind="internal", message=message), {}, results)


def _failed_run(
    error: ErrorInfo, hosts: dict[int, dict[str, HostChange]], results: Iterable[Result]
) -> Changes:
    for start, outcome in results:
        hosts.setdefault(start.course.index, {}).setdefault(start.host, _result(start, outcome))
    return Changes(
        run=RunChange(
            status=RunStatus.FAILED, message=error.message, error=error, last_error=error
        ),
        steps={index: StepChange(hosts=each) for index, each in hosts.items()},
    )


def _result(start: Start, outcome: Outcome) -> HostChange:
    """A host that is well so far, in the midst of its loop, does not come to the end of it."""
    course, host, position = start
    if position is None or course.items is None or not course.items[host]:
        return told(HostChange, outcome)
    items = {position: told(ItemChange, outcome)}
    if outcome.status in (HostStatus.SUCCESS, HostStatus.SKIPPED):
        outcome = RUN_FAILED.outcome()
    return HostChange(status=outcome.status, message=outcome.message, items=items)


def _has_ended(change: ItemChange) -> bool:
    return change.status is not UNSET and change.status in ENDED_HOST


def _failed(said: HostChange, message: str) -> HostChange:
    items = {
        position: ItemChange(status=HostStatus.FAILED, message=message)
        for position, item in said.items.items()
        if _has_ended(item)
    }
    return HostChange(status=HostStatus.FAILED, message=message, items=items)
