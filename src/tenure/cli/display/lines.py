"""A run as lines of text, for files and pipes: time, step, host, status, message."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from queue import SimpleQueue
from typing import Generic, NamedTuple, TextIO, TypeVar

from tenure.cli.display.text import clock, neutral, one_line, padded
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import HostStatus, StepStatus
from tenure.model.update import RecordedEvent
from tenure.ports.environment import Clock
from tenure.ports.execution import OutputChunk

# Output is handled in blocks of lines: millions of short lines cost little more than their bytes.


Key = TypeVar("Key")

_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\n"


class LineCutter(Generic[Key]):
    """Cuts chunks into whole lines. ``show`` gets the lines of a chunk together, without the last
    line end; an unfinished line waits for its end, up to ``longest`` bytes."""

    def __init__(self, show: Callable[[Key, bytes], None], longest: int) -> None:
        self._show = show
        self._longest = longest
        self._open: dict[Key, bytes] = {}

    def add(self, key: Key, data: bytes) -> None:
        data = self._open.pop(key, b"") + data
        end = data.rfind(b"\n")
        rest = len(data) - end - 1
        if rest > self._longest:
            end = len(data)
        elif rest:
            self._open[key] = data[end + 1 :]
        if end >= 0:
            self._show(key, data[:end])

    def end(self, wanted: Callable[[Key], bool] = lambda key: True) -> None:
        """Show the unfinished lines."""
        for key in [key for key in self._open if wanted(key)]:
            self._show(key, self._open.pop(key))


def lines_as_seen(data: bytes) -> str:
    """Lines as a terminal would leave them: without what was overwritten after ``\\r``."""
    text = data.decode("utf-8", "replace")
    if _is_printable(data):
        return text
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return neutral(text).expandtabs(8)


def lines_as_kept(data: bytes) -> str:
    """Lines with everything that was printed, made safe."""
    text = data.decode("utf-8", "replace")
    if _is_printable(data):
        return text
    return neutral(text.replace("\r\n", "\n").removesuffix("\r"))


def behind(before: str, lines: str) -> str:
    """Each line prefixed with ``before``."""
    return before + lines.replace("\n", f"\n{before}")


def _is_printable(data: bytes) -> bool:
    """Only printable ASCII, as nearly all output: checking that is cheaper than cleaning."""
    return not data.translate(None, _PRINTABLE)


# Writing to a stream that may block.
#
# A stopped terminal or a pager blocks the writer, and the event loop must not block: it renews
# leases. So a thread writes, and also makes output readable. Lines about the run's state are never
# dropped; output is, with a note, if too much of it waits.


_MAX_WAITING_BYTES = 16 * 1024 * 1024


class _Output(NamedTuple):
    before: str
    lines: bytes


class Printer:
    """Writes lines to a stream in a thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._queue: SimpleQueue[str | _Output | None] = SimpleQueue()
        # Byte counts: each is changed by one thread only, so no lock is needed.
        self._taken = self._written = 0
        self._dropped = 0
        self.reader_left = False
        self._thread = threading.Thread(target=self._write, name="tenure-printer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Bytes of output not yet written."""
        return self._taken - self._written

    def line(self, text: str) -> None:
        self._report_dropped()
        self._queue.put(text)

    def output(self, before: str, lines: bytes) -> None:
        """Whole lines without the last line end, each to be prefixed with ``before``. May be
        dropped; then more is, until half of what waits is written: few large gaps, not many."""
        room = _MAX_WAITING_BYTES // 2 if self._dropped else _MAX_WAITING_BYTES
        if self.waiting > room:
            self._dropped += lines.count(b"\n") + 1
            return
        self._report_dropped()
        self._taken += len(lines)
        self._queue.put(_Output(before, lines))

    def close(self) -> None:
        """Returns when everything is written, or the reader has closed the stream."""
        self._report_dropped()
        self._queue.put(None)
        self._thread.join()

    def _report_dropped(self) -> None:
        if self._dropped:
            self._queue.put(f"… {self._dropped:,} lines of output are not shown here")
            self._dropped = 0

    def _write(self) -> None:
        while (said := self._queue.get()) is not None:
            if not self.reader_left:
                self._put(said if isinstance(said, str) else _readable(said))
            if isinstance(said, _Output):
                self._written += len(said.lines)

    def _put(self, text: str) -> None:
        try:
            self._stream.write(f"{text}\n")
            if self._queue.empty():
                self._stream.flush()
        except (OSError, ValueError):  # the reader has closed it; the run continues
            self.reader_left = True


def _readable(said: _Output) -> str:
    return behind(said.before, lines_as_seen(said.lines))


_MAX_HELD_BYTES = 1024 * 1024
_CHUNK_OVERHEAD_BYTES = 256
"""Approximate size of an empty chunk, in bytes."""


class HeldOutput:
    """Holds back output of a step until its start was shown: output arrives sooner than events. If
    too much is held it is passed on early, since a late line about a step is better than lost
    output."""

    def __init__(self, show: Callable[[OutputChunk], None]) -> None:
        self._show = show
        self._known: set[int] = set()
        self._held: list[OutputChunk] = []
        self._size = 0

    def begin(self, planned: RunSnapshot) -> None:
        """Steps that already run are not announced again."""
        begun = (step.index for step in planned.steps if step.status is not StepStatus.PENDING)
        self._known.update(begun)

    def add(self, chunk: OutputChunk) -> None:
        if chunk.step_index in self._known:
            self._show(chunk)
            return
        self._held.append(chunk)
        self._size += len(chunk.data) + _CHUNK_OVERHEAD_BYTES
        if self._size > _MAX_HELD_BYTES:
            self.pass_on()

    def heard_of(self, step_index: int) -> None:
        if step_index not in self._known:
            self._known.add(step_index)
            self._hand_on()

    def pass_on(self) -> None:
        self._known.update(chunk.step_index for chunk in self._held)
        self._hand_on()

    def _hand_on(self) -> None:
        held, self._held, self._size = self._held, [], 0
        for chunk in held:
            self.add(chunk)


_MAX_NAME_WIDTH = 32
_MAX_LINE_BYTES = 64 * 1024


class _Stream(NamedTuple):
    step_index: int
    step: str
    host: str
    stream: str


class PlainView:
    """The lines of a run. The start of a host is not shown: its step's is, and its end will be.

    Output is shown as it comes, but not before its step's start; events once they are durable,
    each with its own time. A line never shows an earlier time than the one above it.
    """

    def __init__(self, printer: Printer, time: Clock, place: str) -> None:
        self._printer = printer
        self._time = time
        self._place = place
        self._newest: datetime | None = None
        self._step_width = self._host_width = 0
        self._cutter: LineCutter[_Stream] = LineCutter(self._show, _MAX_LINE_BYTES)
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
        self._output.pass_on()
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
    return min(max(map(len, names), default=0), _MAX_NAME_WIDTH)
