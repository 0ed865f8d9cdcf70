"""A run as lines of text, for files and pipes: time, step, host, status, message."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from tenure.cli.display.held_output import HeldOutput
from tenure.cli.display.moments import clock
from tenure.cli.display.output_lines import LineCutter
from tenure.cli.display.printer import Printer
from tenure.cli.display.text import one_line, padded
from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus
from tenure.ports.clock import Clock
from tenure.ports.recorder import OutputChunk

_WIDEST = 32
_LONGEST_LINE = 64 * 1024


class _Stream(NamedTuple):
    step_index: int
    step: str
    host: str
    stream: str


class PlainView:
    """A host's start is not told: its step's is, and its end will be.

    Output is shown as it comes, but not before its step is said to run; events once they are
    durable, each with the time it has. So that these do not go back and forth, a line is never
    older than the one above it.
    """

    def __init__(self, printer: Printer, time: Clock, place: str) -> None:
        self._printer = printer
        self._time = time
        self._place = place
        self._newest: datetime | None = None
        self._step_width = self._host_width = 0
        self._cutter: LineCutter[_Stream] = LineCutter(self._show, _LONGEST_LINE)
        self._output = HeldOutput(self._cut)

    def begin(self, planned: RunSnapshot) -> None:
        self._output.begin(planned)
        self._step_width = _width(step.name for step in planned.steps)
        self._host_width = _width(name for step in planned.steps for name in step.hosts)
        named = f"run {planned.run_id} of {one_line(planned.workflow_name)}"
        self._line(planned.created_at or self._time.now(), f"{named}, {self._place}")

    async def record(self, event: RecordedEvent) -> None:
        if event.kind == "host":
            if event.status == HostStatus.RUNNING:
                return
            self._end_output(event.step_index, event.host)
        if event.status is None or event.kind == "run":
            words = event.type.replace(".", " ")  # run failed, cancel requested, lease claimed
        else:
            words = self._columns(event.step, event.host) + padded(event.status, 10)
        self._line(event.at, f"{words}  {one_line(event.message or '')}")
        if event.step_index is not None:
            self._output.heard_of(event.step_index)

    def output(self, chunk: OutputChunk) -> None:
        self._output.add(chunk)

    def end(self) -> None:
        self._output.let_go()
        self._cutter.end()

    def _end_output(self, step_index: int | None, host: str | None) -> None:
        if step_index is not None:
            self._output.heard_of(step_index)
        self._cutter.end(lambda stream: (stream.step_index, stream.host) == (step_index, host))

    def _cut(self, chunk: OutputChunk) -> None:
        stream = _Stream(chunk.step_index, chunk.step, chunk.host, chunk.stream)
        self._cutter.add(stream, chunk.data)

    def _show(self, stream: _Stream, lines: bytes) -> None:
        columns = self._columns(stream.step, stream.host)
        self._printer.output(f"{self._clock(self._time.now())}  {columns}| ", lines)

    def _columns(self, step: str | None, host: str | None) -> str:
        name = padded(one_line(step or ""), self._step_width)
        return f"{name}  {padded(one_line(host or ''), self._host_width)}  "

    def _line(self, at: datetime, text: str) -> None:
        self._printer.line(f"{self._clock(at)}  {text}".rstrip())

    def _clock(self, at: datetime) -> str:
        if self._newest is None or at > self._newest:
            self._newest = at
        return clock(self._newest)


def _width(names: Iterable[str]) -> int:
    return min(max(map(len, names), default=0), _WIDEST)
