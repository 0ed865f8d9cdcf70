"""Ending a run before its steps do: why, and as what."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.snapshot import ErrorInfo
from tenure.model.status import HostStatus, RunStatus
from tenure.model.update import RunChange
from tenure.runtime.executor import CutShort, Outcome
from tenure.workflow.durations import show_duration


class Stop(Struct, frozen=True, kw_only=True):
    status: RunStatus
    message: str
    kind: str | None = None
    host_status: HostStatus = HostStatus.CANCELED
    """Of hosts whose task is ended for it, or that have not begun theirs."""

    def outcome(self, error: asyncio.CancelledError | None = None) -> Outcome:
        """Of a host whose task was ended for it (``error``), or has none."""
        seen = error.seen if isinstance(error, CutShort) else Outcome(status=self.host_status)
        return replace(
            seen, status=self.host_status, message=self.message, kind=self.kind, cut_short=True
        )

    def change(self, unconfirmed: frozenset[str]) -> RunChange:
        """``unconfirmed`` are hosts whose task nobody saw end."""
        fields: dict[str, Any] = {"status": self.status, "message": self.message}
        if self.kind is not None:
            error = ErrorInfo(kind=self.kind, message=self.message)
            fields |= {"error": error, "last_error": error}
        if self.status is RunStatus.INTERRUPTED:
            fields["interrupted_reason"] = self.message
        if unconfirmed:
            fields["unconfirmed_hosts"] = tuple(sorted(unconfirmed))
        return RunChange(**fields)


REQUESTED = Stop(status=RunStatus.CANCELED, message="canceled on request")
"""The request's own reason is in the record already."""
PROCESS_STOPPED = Stop(status=RunStatus.CANCELED, message="the process that ran it was stopped")


def timed_out(seconds: float) -> Stop:
    return Stop(
        status=RunStatus.FAILED,
        kind="timeout",
        message=f"the run timed out after {show_duration(seconds)}",
        host_status=HostStatus.FAILED,
    )


def not_trusted(why: str) -> Stop:
    """The run may be somebody else's by now."""
    return Stop(
        status=RunStatus.INTERRUPTED,
        kind="lease",
        message=f"stopped by its owner: {why}",
        host_status=HostStatus.INTERRUPTED,
    )
