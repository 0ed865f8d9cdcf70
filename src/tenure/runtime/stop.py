"""Reasons to end a run early, and the status and message it then gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.snapshot import ErrorInfo
from tenure.model.status import HostStatus, RunStatus
from tenure.model.update import RunChange
from tenure.runtime.executor import CutShort, Outcome
from tenure.runtime.owners import HANDED_OVER
from tenure.workflow.durations import show_duration

MOST_FAILED_HOSTS = 20


class EndedTask(NamedTuple):
    step: str
    host: str
    outcome: Outcome


class Stop(Struct, frozen=True, kw_only=True):
    status: RunStatus
    message: str
    kind: str | None = None
    host_status: HostStatus = HostStatus.CANCELED
    """For hosts whose task is cancelled, or has not begun."""
    hands_over: bool = False
    """The run is given back, for another worker to continue."""
    yields: bool = False
    """A cancel request that arrives before the end is written replaces it: its requester was told
    that the run would be canceled."""

    def outcome(self, error: asyncio.CancelledError | None = None) -> Outcome:
        """The outcome of a task that was cancelled (``error``) or not begun."""
        seen = error.seen if isinstance(error, CutShort) else Outcome(status=self.host_status)
        return self.instead_of(seen)

    def instead_of(self, seen: Outcome) -> Outcome:
        """``seen`` with this reason as its end."""
        return replace(
            seen, status=self.host_status, message=self.message, kind=self.kind, cut_short=True
        )

    def change(self, ended: Sequence[EndedTask], unconfirmed: Iterable[str]) -> RunChange:
        """``ended``: the tasks cancelled for it; ``unconfirmed``: hosts whose task was not
        confirmed to have ended."""
        fields: dict[str, Any] = {"status": self.status, "message": self.message}
        if self.kind is not None:
            failed = ended if self.host_status is HostStatus.FAILED else ()
            error = _error(self.kind, self.message, failed)
            fields |= {"error": error, "last_error": error}
        if self.status is RunStatus.INTERRUPTED:
            fields["interrupted_reason"] = self.message
        if unconfirmed:
            fields["unconfirmed_hosts"] = tuple(sorted(unconfirmed))
        return RunChange(**fields)


def _error(kind: str, message: str, failed: Sequence[EndedTask]) -> ErrorInfo:
    if not failed:
        return ErrorInfo(kind=kind, message=message)
    names = sorted({task.host for task in failed})
    first = min(failed, key=lambda task: task.host)
    return ErrorInfo(
        kind=kind,
        message=message,
        step=first.step,
        host=first.host,
        stderr_tail=first.outcome.stderr,
        failed_hosts=tuple(names[:MOST_FAILED_HOSTS]),
        failed_count=len(names),
    )


REQUESTED = Stop(status=RunStatus.CANCELED, message="canceled on request")
"""The reason given with the request is in the record already."""
PROCESS_STOPPED = Stop(status=RunStatus.CANCELED, message="the process that ran it was stopped")
HAND_OVER = Stop(
    status=RunStatus.RUNNING,
    message=HANDED_OVER,
    host_status=HostStatus.UNKNOWN,
    hands_over=True,
    yields=True,
)
WORKER_STOPPED = Stop(
    status=RunStatus.INTERRUPTED,
    kind="interrupted",
    message="its worker was told to stop, and it does not resume",
    host_status=HostStatus.INTERRUPTED,
    yields=True,
)
"""Stopping a worker is no decision about its runs; stopping the command that executes a run is
(``PROCESS_STOPPED``)."""
RUN_FAILED = Stop(status=RunStatus.FAILED, message="canceled: its run failed")
"""For tasks that are cancelled because their run has failed."""


def timed_out(seconds: float) -> Stop:
    return Stop(
        status=RunStatus.FAILED,
        kind="timeout",
        message=f"the run timed out after {show_duration(seconds)}",
        host_status=HostStatus.FAILED,
    )


def asked(step: str, host: str, lost: str = "worker") -> Stop:
    """``on_takeover: ask``: an operator decides about a task whose end is not recorded."""
    return Stop(
        status=RunStatus.INTERRUPTED,
        kind="takeover",
        message=f"step {step!r} ran on {host} when its {lost} was lost, with no recorded end; "
        "on_takeover says ask: look, then tenure retry",
        host_status=HostStatus.INTERRUPTED,
    )


NOT_RENEWED = "its lease could not be renewed in time"


def not_trusted(why: str) -> Stop:
    """The run may have another owner by now."""
    return Stop(
        status=RunStatus.INTERRUPTED,
        kind="lease",
        message=f"stopped by its owner: {why}",
        host_status=HostStatus.INTERRUPTED,
    )
