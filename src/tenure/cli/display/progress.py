"""A run as its events tell it: what every view of a running run shows.

Counts, not hosts: a step with five thousand hosts is one line like any other.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import datetime

from tenure.cli.display.output_lines import lines_as_seen
from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import (
    ENDED_HOST,
    TERMINAL_RUN,
    HostStatus,
    RunStatus,
    StepKind,
    StepStatus,
)
from tenure.ports.recorder import OutputChunk

_LONGEST_LINE = 1024


class StepProgress:
    def __init__(
        self,
        index: int,
        name: str,
        kind: StepKind,
        hosts: int = 0,
        notified_by: int | None = None,
    ) -> None:
        self.index = index
        self.name = name
        self.kind = kind
        self.notified_by = notified_by
        self.status = StepStatus.PENDING
        self.message: str | None = None
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.counts: Counter[HostStatus] = Counter()
        self._planned = hosts
        self._hosts: dict[str, HostStatus] = {}

    @property
    def total(self) -> int:
        """A handler's hosts are known once they start."""
        return max(self._planned, len(self._hosts))

    @property
    def runs_itself(self) -> bool:
        return self.status is StepStatus.RUNNING and self.kind is StepKind.STEP

    @property
    def ended(self) -> int:
        return sum(self.counts[status] for status in ENDED_HOST)

    @property
    def only_host(self) -> str | None:
        return next(iter(self._hosts)) if self.total == 1 and self._hosts else None

    def move(self, status: StepStatus, at: datetime) -> None:
        self.status = status
        if status is StepStatus.RUNNING:
            self.started_at = at
        else:
            self.finished_at = at

    def move_host(self, host: str, status: HostStatus) -> None:
        before = self._hosts.get(host)
        if before is not None:
            self.counts[before] -= 1
        self._hosts[host] = status
        self.counts[status] += 1


class Progress:
    """Fed with a plan, then with events in their order."""

    def __init__(self) -> None:
        self.run_id = ""
        self.workflow_name = ""
        self.status = RunStatus.QUEUED
        self.message: str | None = None
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.canceling: str | None = None
        """Why a cancel was asked for, once it was."""
        self.steps: dict[int, StepProgress] = {}

    def begin(self, planned: RunSnapshot) -> None:
        self.run_id = planned.run_id
        self.workflow_name = planned.workflow_name
        for step in planned.steps:
            self.steps[step.index] = StepProgress(
                step.index, step.name, step.kind, len(step.hosts), step.notified_by
            )

    def take(self, event: RecordedEvent) -> None:
        if event.type == "cancel.requested":
            self.canceling = event.message or "on request"
        if event.status is None:
            return
        if event.kind == "run":
            self._move_run(RunStatus(event.status), event)
        elif event.step_index is not None:
            step = self._step(event.step_index, event.step)
            if event.kind == "step":
                step.move(StepStatus(event.status), event.at)
                step.message = event.message or step.message
            elif event.host is not None:
                step.move_host(event.host, HostStatus(event.status))

    def _move_run(self, status: RunStatus, event: RecordedEvent) -> None:
        self.status = status
        self.message = event.message
        if status is RunStatus.RUNNING and self.started_at is None:
            self.started_at = event.at
        if status in TERMINAL_RUN:
            self.finished_at = event.at

    def _step(self, index: int, name: str | None) -> StepProgress:
        """What the plan does not know is a handler: those join when they are notified. Events do
        not tell by whom; while one step runs it can only be that one."""
        step = self.steps.get(index)
        if step is None:
            running = [each.index for each in self.steps.values() if each.runs_itself]
            by = running[0] if len(running) == 1 else None
            step = self.steps[index] = StepProgress(
                index, name or "", StepKind.HANDLER, notified_by=by
            )
        return step


class OutputTail:
    """The newest lines of everybody's output, whatever is printed."""

    def __init__(self, lines: int) -> None:
        self._most = lines
        self._lines: deque[tuple[str, str]] = deque(maxlen=lines)
        self._open: dict[tuple[int, str, str], bytes] = {}
        self._newest: tuple[int, str, str] | None = None

    def add(self, chunk: OutputChunk) -> None:
        key = (chunk.step_index, chunk.host, chunk.stream)
        data = self._open.pop(key, b"") + chunk.data
        *whole, rest = data[-_LONGEST_LINE * self._most :].split(b"\n")
        for line in whole[-self._most :]:
            shown = lines_as_seen(line).rstrip()
            if shown:
                self._lines.append((chunk.host, shown))
        if rest:
            self._open[key] = rest[-_LONGEST_LINE:]
        self._newest = key

    def lines(self) -> list[tuple[str, str]]:
        """Host and text; the last one may not have ended yet."""
        found = list(self._lines)
        unfinished = self._open.get(self._newest) if self._newest else None
        if self._newest and unfinished:
            shown = lines_as_seen(unfinished).rstrip()
            if shown:
                found.append((self._newest[1], shown))
        return found[-self._most :]
