"""What a terminal shows of a run while it happens: lines that fit, whatever the run is like."""

from __future__ import annotations

from datetime import datetime

from tenure.cli.display.counting import Piece, in_the_end, so_far
from tenure.cli.display.moments import between
from tenure.cli.display.paint import bold, dim, in_color, sign
from tenure.cli.display.progress import OutputTail, Progress, StepProgress
from tenure.cli.display.step_rows import StepRow, in_order, name_width, step_line
from tenure.cli.display.text import cells, counted, one_line, padded
from tenure.model.status import ENDED_STEP, StepStatus

_ROOM_FOR_OUTPUT = 15
"""A terminal lower than this shows steps only."""


def picture(
    progress: Progress,
    tail: OutputTail,
    place: str,
    notice: str | None,
    now: datetime,
    size: tuple[int, int],
) -> list[str]:
    """``size`` is columns and lines. At most that many lines, or as few as make sense; they may be
    longer than the columns."""
    columns, height = size
    head = _head(progress, place, now)
    output = _output(tail) if height >= _ROOM_FOR_OUTPUT else []
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
    """Which steps to show when there is room for few: those from the first that has not ended, with
    the one before it. Two lines are kept for saying what is left out."""
    if len(statuses) <= room:
        return 0, len(statuses)
    size = max(room - 2, 1)
    unended = (n for n, status in enumerate(statuses) if status not in ENDED_STEP)
    first = next(unended, len(statuses)) - (1 if size > 1 else 0)
    first = min(max(first, 0), len(statuses) - size)
    return first, first + size


def _row(step: StepProgress, now: datetime) -> StepRow:
    elapsed = between(step.started_at, step.finished_at or now)
    return StepRow(step.name, step.kind, step.status, _standing(step), elapsed)


def _standing(step: StepProgress) -> list[Piece]:
    if step.status is StepStatus.PENDING:
        return [Piece(counted(step.total, "host"), "pending")]
    if step.status is StepStatus.RUNNING:
        return so_far(step.counts, step.total)
    return in_the_end(step.counts) or [Piece(one_line(step.message or step.status), step.status)]


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
