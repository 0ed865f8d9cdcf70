"""What a measurement is, and the table it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from time import perf_counter

from msgspec import Struct


class Figure(Struct, frozen=True, kw_only=True):
    """``ours`` and ``limit`` in ``unit``; ``ratio`` is ours / limit.

    ``at_least``/``at_most`` is the goal for the ratio, whichever fits; neither: for information.
    """

    name: str
    unit: str
    ours: float
    limit: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.limit

    @property
    def goal(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}" if self.at_most is not None else "-"

    @property
    def ok(self) -> bool:
        return (self.at_least is None or self.ratio >= self.at_least) and (
            self.at_most is None or self.ratio <= self.at_most
        )


def table(figures: Iterable[Figure]) -> str:
    rows = [("name", "ours", "limit", "unit", "ratio", "goal", "ok")]
    rows += [
        (
            figure.name,
            f"{figure.ours:,.4g}",
            f"{figure.limit:,.4g}",
            figure.unit,
            f"{figure.ratio:.2f}",
            figure.goal,
            "yes" if figure.ok else "NO",
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 3) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def typical(samples: Iterable[float]) -> float:
    return median(samples)


def typical_turn(ours: Sequence[float], limits: Sequence[float]) -> tuple[float, float]:
    """Ours and its limit in the turn whose ratio is the middle one. A machine that becomes slower
    does so between turns: what stands beside each other met the same one."""
    turns = sorted(zip(ours, limits, strict=True), key=lambda turn: turn[0] / turn[1])
    return turns[len(turns) // 2]
