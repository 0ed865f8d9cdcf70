"""Runs, one per line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from shutil import get_terminal_size

from tenure.cli.display.moments import ago, between
from tenure.cli.display.paint import dim, in_color, sign
from tenure.cli.display.text import cells, fitted, one_line
from tenure.model.snapshot import RunSummary
from tenure.model.status import HostStatus
from tenure.runtime.owners import Doubt, doubt_about
from tenure.system import presence

_TITLES = ("RUN", "STATUS", "WORKFLOW", "TASKS", "TOOK", "CREATED")
_NAME = _TITLES.index("WORKFLOW")
_LEAST_NAME = 8
_GIVE_WAY = (_TITLES.index("TOOK"), _TITLES.index("TASKS"))
_GAP = "  "
_BAD = (HostStatus.FAILED, HostStatus.UNREACHABLE, HostStatus.UNKNOWN)
_OWNER = {
    Doubt.GONE: "owner gone",
    Doubt.SILENT: "owner silent",
    Doubt.UNHEARD: "owner lost",
}


def run_table(runs: Sequence[RunSummary], now: datetime) -> list[str]:
    """As wide as the terminal allows. Where it is narrow the workflow's name gives way, then how
    long the runs took."""
    rows = [_row(run, now) for run in runs]
    widths = _fit([max(map(cells, column)) for column in zip(_TITLES, *rows, strict=True)])
    lines = [dim(_GAP.join(fitted(_TITLES, widths)).rstrip())]
    for run, row in zip(runs, rows, strict=True):
        run_id, status, name, *rest = fitted(row, widths)
        words = (run_id, in_color(run.status, status), name, dim(_GAP.join(rest).rstrip()))
        lines.append(_GAP.join(words))
    return lines


def _fit(widths: list[int]) -> list[int]:
    """A column without width is left out."""
    for left_out in (None, *_GIVE_WAY):
        if left_out is not None:
            widths[left_out] = 0
        shown = [width for width in widths if width]
        spare = get_terminal_size().columns - sum(shown) - len(_GAP) * (len(shown) - 1)
        if widths[_NAME] + spare >= _LEAST_NAME:
            widths[_NAME] += min(spare, 0)
            return widths
    widths[_NAME] = _LEAST_NAME
    return widths


def _row(run: RunSummary, now: datetime) -> tuple[str, ...]:
    doubt = doubt_about(run, presence)
    word = run.status if doubt is None else _OWNER[doubt]
    return (
        run.run_id,
        f"{sign(run.status)} {word}",
        one_line(run.workflow_name),
        _tasks(run),
        between(run.started_at, run.finished_at or now),
        ago(run.created_at, now),
    )


def _tasks(run: RunSummary) -> str:
    """Hosts of steps that ended well, of all there are; and how many did not."""
    counts = run.counts
    bad = sum(counts.hosts.get(status, 0) for status in _BAD)
    shown = f"{counts.hosts.get(HostStatus.SUCCESS, 0)}/{counts.hosts_total}"
    return f"{shown} {sign('failed')}{bad}" if bad else shown
