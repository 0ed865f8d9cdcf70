"""A run on a terminal, drawn while it executes.

A thread draws at most eight times a second, from counts kept by the event loop: a stopped or slow
terminal never blocks the run. When the run has ended the drawing is removed, and the report is
printed instead.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from datetime import datetime
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tenure.cli.display.lines import lines_as_seen
from tenure.cli.display.report import (
    NOT_STARTED,
    Piece,
    StepRow,
    in_order,
    in_the_end,
    name_width,
    so_far,
    step_line,
)
from tenure.cli.display.text import (
    between,
    bold,
    cells,
    counted,
    dim,
    in_color,
    one_line,
    padded,
    sign,
)
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import (
    ENDED_HOST,
    ENDED_STEP,
    TERMINAL_RUN,
    HostStatus,
    RunStatus,
    StepKind,
    StepStatus,
)
from tenure.model.update import RecordedEvent
from tenure.ports.environment import Clock
from tenure.ports.execution import OutputChunk

# The state of a run as told by its events, for all live views. Counts instead of hosts: a step with
# five thousand hosts is one line like any other.


_MAX_LINE_CHARACTERS = 1024


class ShownStep:
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
        """A handler's hosts become known when they start."""
        return max(self._planned, len(self._hosts))

    @property
    def runs_itself(self) -> bool:
        return self.status is StepStatus.RUNNING and self.kind is StepKind.STEP

    @property
    def ended(self) -> int:
        return sum(self.counts[status] for status in ENDED_HOST)

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
    """The state of a run: gets the plan, then events in order."""

    def __init__(self) -> None:
        self.run_id = ""
        self.workflow_name = ""
        self.status = RunStatus.QUEUED
        self.message: str | None = None
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.canceling: str | None = None
        """The reason of the cancel request, if there is one."""
        self.steps: dict[int, ShownStep] = {}

    def begin(self, planned: RunSnapshot) -> None:
        self.run_id = planned.run_id
        self.workflow_name = planned.workflow_name
        for step in planned.steps:
            self.steps[step.index] = ShownStep(
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

    def _step(self, index: int, name: str | None) -> ShownStep:
        """A step that is not in the plan is a handler, added when it is notified. Events do not
        name the notifying step; if one step runs, it can only be that one."""
        step = self.steps.get(index)
        if step is None:
            running = [each.index for each in self.steps.values() if each.runs_itself]
            by = running[0] if len(running) == 1 else None
            step = self.steps[index] = ShownStep(
                index, name or "", StepKind.HANDLER, notified_by=by
            )
        return step


class OutputTail:
    """The newest lines of all output."""

    def __init__(self, lines: int) -> None:
        self._most = lines
        self._lines: deque[tuple[str, str]] = deque(maxlen=lines)
        self._open: dict[tuple[int, str, str], bytes] = {}
        self._newest: tuple[int, str, str] | None = None

    def add(self, chunk: OutputChunk) -> None:
        key = (chunk.step_index, chunk.host, chunk.stream)
        data = self._open.pop(key, b"") + chunk.data
        *whole, rest = data[-_MAX_LINE_CHARACTERS * self._most :].split(b"\n")
        for line in whole[-self._most :]:
            shown = lines_as_seen(line).rstrip()
            if shown:
                self._lines.append((chunk.host, shown))
        if rest:
            self._open[key] = rest[-_MAX_LINE_CHARACTERS:]
        self._newest = key

    def lines(self) -> list[tuple[str, str]]:
        """Host and text; the last line may be unfinished."""
        found = list(self._lines)
        unfinished = self._open.get(self._newest) if self._newest else None
        if self._newest and unfinished:
            shown = lines_as_seen(unfinished).rstrip()
            if shown:
                found.append((self._newest[1], shown))
        return found[-self._most :]


# Drawing: lines that fit the terminal, whatever the run.


_MIN_LINES_FOR_OUTPUT = 15
"""A terminal with fewer lines shows steps only."""


def picture(
    progress: Progress,
    tail: OutputTail,
    place: str,
    notice: str | None,
    now: datetime,
    size: tuple[int, int],
) -> list[str]:
    """The lines to draw. ``size`` is columns and lines; at least a few lines are drawn, and they
    may be longer than the columns."""
    columns, height = size
    head = _head(progress, place, now)
    output = _output(tail) if height >= _MIN_LINES_FOR_OUTPUT else []
    foot = _foot(progress, notice)
    room = height - len(head) - len(output) - len(foot)
    return [*head, *_steps(progress, now, columns, max(room, 1)), *output, *foot]


def _head(progress: Progress, place: str, now: datetime) -> list[str]:
    elapsed = between(progress.started_at, progress.finished_at or now)
    state = in_color(progress.status, f"{sign(progress.status)} {progress.status}")
    return [
        f"{state}  {bold(one_line(progress.workflow_name))}  {dim(elapsed)}",
        f"  {dim(f'{progress.run_id}  {place}')}",
        "",
    ]


def _steps(progress: Progress, now: datetime, columns: int, room: int) -> list[str]:
    steps = in_order(progress.steps.values())
    width = name_width([step.name for step in steps], columns)
    first, last = window([step.status for step in steps], room)
    lines = [step_line(_row(step, now), width) for step in steps[first:last]]
    if first:
        lines.insert(0, dim(f"    {counted(first, 'step')} above"))
    if last < len(steps):
        lines.append(dim(f"    {counted(len(steps) - last, 'step')} below"))
    return lines


def window(statuses: list[StepStatus], room: int) -> tuple[int, int]:
    """Which steps to show when there is room for few: from the one before the first unfinished one.
    Two lines are kept to say how many are left out."""
    if len(statuses) <= room:
        return 0, len(statuses)
    size = max(room - 2, 1)
    unended = (n for n, status in enumerate(statuses) if status not in ENDED_STEP)
    first = next(unended, len(statuses)) - (1 if size > 1 else 0)
    first = min(max(first, 0), len(statuses) - size)
    return first, first + size


def _row(step: ShownStep, now: datetime) -> StepRow:
    elapsed = between(step.started_at, step.finished_at or now)
    return StepRow(step.name, step.kind, step.status, _standing(step), elapsed)


def _standing(step: ShownStep) -> list[Piece]:
    if step.status is StepStatus.PENDING:
        return [Piece(counted(step.total, "host"), "pending")]
    if step.status is StepStatus.RUNNING:
        return so_far(step.counts, step.total)
    return in_the_end(step.counts) or [Piece(one_line(step.message or NOT_STARTED), step.status)]


def _output(tail: OutputTail) -> list[str]:
    lines = [(one_line(host), text) for host, text in tail.lines()]
    width = max((cells(host) for host, _ in lines), default=0)
    shown = [f"  {dim(f'{padded(host, width)} │')} {text}" for host, text in lines]
    return ["", *shown] if shown else []


def _foot(progress: Progress, notice: str | None) -> list[str]:
    if notice is None and progress.canceling is not None:
        notice = f"canceling: {one_line(progress.canceling)}"
    if notice is None or progress.finished_at is not None:
        return []
    return ["", f"  {in_color('canceled', notice)}"]


_FRAME_INTERVAL_S = 1 / 8
_IDLE_INTERVAL_S = 0.5
"""Seconds without news after which the elapsed time is redrawn."""
_TAIL_LINES = 6


class LiveView:
    """A ``Recorder`` that draws while it is entered."""

    def __init__(self, console: Console, clock: Clock, place: str) -> None:
        self._console = console
        self._clock = clock
        self._place = place
        self._progress = Progress()
        self._tail = OutputTail(_TAIL_LINES)
        self._notice: str | None = None
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._drawing = threading.Thread(target=self._draw, name="tenure-view", daemon=True)

    def __enter__(self) -> Self:
        self._drawing.start()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self._stopped.set()
        self._changed.set()
        self._drawing.join()

    def begin(self, planned: RunSnapshot) -> None:
        with self._lock:
            self._progress.begin(planned)
        self._changed.set()

    async def record(self, event: RecordedEvent) -> None:
        with self._lock:
            self._progress.take(event)
        self._changed.set()

    def output(self, chunk: OutputChunk) -> None:
        with self._lock:
            self._tail.add(chunk)
        self._changed.set()

    def notice(self, text: str) -> None:
        """Show ``text`` below the steps, until the end."""
        with self._lock:
            self._notice = text
        self._changed.set()

    def _draw(self) -> None:
        try:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while not self._stopped.wait(_FRAME_INTERVAL_S):
                    self._changed.wait(_IDLE_INTERVAL_S)
                    self._changed.clear()
                    live.update(self._frame(), refresh=True)
        except OSError:
            return  # the terminal is gone; the run continues

    def _frame(self) -> Group:
        columns, height = self._console.size
        with self._lock:
            if not self._progress.run_id:
                return Group()
            lines = picture(
                self._progress,
                self._tail,
                self._place,
                self._notice,
                self._clock.now(),
                (columns, height - 1),
            )
        return Group(*map(_fitted, lines))


def _fitted(line: str) -> Text:
    text = Text.from_ansi(line)
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
