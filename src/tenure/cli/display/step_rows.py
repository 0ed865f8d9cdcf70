"""Steps, one line each: the same in a live picture and in a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tenure.cli.display.counting import Piece
from tenure.cli.display.paint import dim, in_color, sign
from tenure.cli.display.text import cells, one_line, padded, shorten
from tenure.model.status import StepKind, StepStatus

_WIDEST_NAME = 60
_ROOM_FOR_COUNTS = 34
_QUIET = (StepStatus.PENDING, StepStatus.SKIPPED)


class _Placed(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def notified_by(self) -> int | None: ...


Placed = TypeVar("Placed", bound=_Placed)


def in_order(steps: Iterable[Placed]) -> list[Placed]:
    """A handler stands below the step it ran for, if one knows which that was."""

    def place(step: Placed) -> tuple[int, int]:
        return step.index if step.notified_by is None else step.notified_by, step.index

    return sorted(steps, key=place)


class StepRow(NamedTuple):
    name: str
    kind: StepKind
    status: StepStatus
    standing: list[Piece]
    elapsed: str


def name_width(names: Sequence[str], columns: int) -> int:
    """Names give way where the terminal is narrow: what a step has done matters more."""
    longest = max((cells(one_line(name)) for name in names), default=0) + 2
    return min(longest, _WIDEST_NAME, max(columns - _ROOM_FOR_COUNTS - 12, 10))


def step_line(row: StepRow, width: int) -> str:
    """``✓ drain    50 ok                        3.1s``"""
    name = one_line(row.name)
    if row.kind is StepKind.HANDLER:
        name = f"↳ {name}"
    name = padded(shorten(name, width), width)
    shown = " · ".join(
        in_color(piece.status, piece.text) if piece.status else piece.text for piece in row.standing
    )
    start = f"  {in_color(row.status, sign(row.status))} "
    line = f"{start}{dim(name) if row.status in _QUIET else name}  {shown}"
    if not row.elapsed:
        return line
    taken = sum(cells(piece.text) + 3 for piece in row.standing) - 3
    return f"{line}{' ' * max(_ROOM_FOR_COUNTS - taken, 2)}{dim(row.elapsed)}"
