"""The views of a running run: live on a terminal, lines otherwise, JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from tenure.cli.display import json_lines, report
from tenure.cli.display.json_lines import JsonView
from tenure.cli.display.lines import PlainView, Printer
from tenure.cli.display.text import complain, dim, note, say, to_type
from tenure.cli.exit_codes import OF_STATUS, READER_LEFT, Exit
from tenure.cli.streams import discard
from tenure.model.decide import waits_for_approval
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.ports.execution import Recorder
from tenure.runtime.owners import owner_label
from tenure.system import SystemClock


class Style(Enum):
    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"
    QUIET = "quiet"


def style_of(*, as_json: bool, quiet: bool) -> Style:
    if as_json:
        return Style.JSON
    if quiet:
        return Style.QUIET
    smart = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Style.LIVE if smart else Style.PLAIN


class View(NamedTuple):
    recorders: tuple[Recorder, ...]
    notice: Callable[[str], None]
    """Shows a message besides the run's own events."""
    reader_left: Callable[[], bool] = lambda: False


@contextmanager
def showing(style: Style, place: str) -> Iterator[View]:
    if style is Style.QUIET:
        yield View((), note)
    elif style is Style.LIVE:
        from rich.console import Console

        from tenure.cli.display.live import LiveView

        with LiveView(Console(), SystemClock(), place) as live:
            yield View((live,), live.notice)
    else:
        printer = Printer(sys.stdout)
        plain = PlainView(printer, SystemClock(), place)
        try:
            recorder = plain if style is Style.PLAIN else JsonView(printer)
            yield View((recorder,), note, lambda: printer.reader_left)
        finally:
            plain.end()
            printer.close()


def conclude(run: RunSnapshot, style: Style, place: str, *, tracked: bool = True) -> int:
    """Print the final report of a run; returns its exit code, even if the output is closed."""
    with closed_output_ignored():
        _report(run, style, place, tracked=tracked)
    if run.ended:
        return OF_STATUS[run.status]
    if waits_for_approval(run):
        return Exit.REFUSED
    word = "canceled" if run.cancel_requested_at else "interrupted"
    owner = owner_label(run.owner_id)
    said = f"{owner} is gone: no worker continues this run; tenure reconcile marks it as {word}"
    note(to_type(said))
    return OF_STATUS[word]


@contextmanager
def closed_output_ignored() -> Iterator[None]:
    """A closed output does not change the exit code."""
    try:
        yield
    except OSError as error:
        if error.errno not in READER_LEFT:
            complain(f"the report cannot be written: {error.strerror}")
        discard(sys.stdout)


def _report(run: RunSnapshot, style: Style, place: str, *, tracked: bool) -> None:
    if style is Style.JSON:
        say(json_lines.as_json(run))
        return
    now = SystemClock().now()
    to_stderr = style is Style.QUIET
    if to_stderr and run.status is RunStatus.SUCCESS:
        return
    lines = [report.headline(run, now)]
    if style is Style.LIVE:
        lines += [f"  {dim(f'{run.run_id}  {place}')}", "", *report.step_lines(run, now)]
    lines += report.trouble_lines(run)
    lines += report.approval_lines(run, now)
    if tracked:
        lines += report.further_lines(run)
    say("\n".join(lines), err=to_stderr)
