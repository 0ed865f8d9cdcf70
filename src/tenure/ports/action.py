"""What a step does on one host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from tenure.model.errors import HostUnreachable, LeaseLost, StillRunning, Untrusted
from tenure.model.status import HostStatus
from tenure.ports.masking import NOTHING_SECRET, Masking
from tenure.ports.transport import Endpoint, Output, Transport
from tenure.workflow.catalogue import ActionSpec

LET_THROUGH = (LeaseLost, HostUnreachable, StillRunning, Untrusted)
"""What is no failure of an action: whoever runs it knows what these mean."""


class Task(Struct, frozen=True, kw_only=True):
    """One action on one host for one item and attempt, with everything rendered."""

    task_id: str
    """The same for the same run, step, host, item and attempt, whoever executes it."""
    run_id: str
    step: str
    step_index: int
    host: Endpoint
    action: str
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    """Variables for processes; empty for actions that start none."""
    vars: Mapping[str, Any] = {}
    """Every variable this host sees."""
    item: int | None = None
    attempt: int = 1
    fence: int = 0
    folder: str | None = None
    """Where the workflow file is: files an action needs, and that did not travel with the run, are
    looked up from here; ``None``: there is no such place."""
    files: Mapping[str, bytes] = {}
    """Those that travelled with the run, by the names the arguments give them."""
    become: str | None = None
    masks: Masking = NOTHING_SECRET
    """Know the run's secrets. What an action prints and says is masked anyway; what it shortens or
    tidies before, it masks first."""


class TaskResult(Struct, frozen=True, kw_only=True):
    """How it ended. Status is success, failed, unreachable or skipped."""

    status: HostStatus = HostStatus.SUCCESS
    message: str | None = None
    kind: str | None = None
    """Of a failure, for programs: ``exit``, ``exception``, ``arguments`` …"""
    exit_code: int | None = None
    changed: bool | None = None
    vars: dict[str, Any] = {}
    """Exported to later steps."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """What ``apply`` would do. ``changed`` ``None``: cannot be known without doing it."""

    changed: bool | None = None
    summary: str = ""
    diff: str | None = None


class Action(Protocol):
    @property
    def spec(self) -> ActionSpec: ...

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        """Do it. An exception is a failure with its text as message; being cancelled means
        stop now, leave nothing running."""
        ...

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        """Find out what ``apply`` would do, changing nothing."""
        ...
