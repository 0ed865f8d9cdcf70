"""Writing to a reader that may pause.

A stopped terminal or a pager holds up whoever writes to it. The event loop must not be held up: it
renews leases. So everything goes through a thread, which also makes output readable. What is said
of the run's state is never dropped; its output is, with a note, when too much of it waits.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import NamedTuple, TextIO

from tenure.cli.display.output_lines import behind, lines_as_seen

_MOST_WAITING = 16 * 1024 * 1024


class _Output(NamedTuple):
    before: str
    lines: bytes


class Printer:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._said: SimpleQueue[str | _Output | None] = SimpleQueue()
        # Bytes of output: each number has one thread that changes it, so no lock is needed.
        self._taken = self._written = 0
        self._dropped = 0
        self.reader_left = False
        self._thread = threading.Thread(target=self._write, name="tenure-printer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Bytes of output that are not written yet."""
        return self._taken - self._written

    def line(self, text: str) -> None:
        self._tell_of_dropped()
        self._said.put(text)

    def output(self, before: str, lines: bytes) -> None:
        """Whole lines without the last one's end, each to be shown behind ``before``. May be
        dropped; then more is, until half of what waits is written: few large gaps, not many."""
        room = _MOST_WAITING // 2 if self._dropped else _MOST_WAITING
        if self.waiting > room:
            self._dropped += lines.count(b"\n") + 1
            return
        self._tell_of_dropped()
        self._taken += len(lines)
        self._said.put(_Output(before, lines))

    def close(self) -> None:
        """Returns when everything is written, or the reader has left."""
        self._tell_of_dropped()
        self._said.put(None)
        self._thread.join()

    def _tell_of_dropped(self) -> None:
        if self._dropped:
            self._said.put(f"… {self._dropped:,} lines of output are not shown here")
            self._dropped = 0

    def _write(self) -> None:
        while (said := self._said.get()) is not None:
            if not self.reader_left:
                self._put(said if isinstance(said, str) else _readable(said))
            if isinstance(said, _Output):
                self._written += len(said.lines)

    def _put(self, text: str) -> None:
        try:
            self._stream.write(f"{text}\n")
            if self._said.empty():
                self._stream.flush()
        except (OSError, ValueError):  # the reader has left; the run goes on
            self.reader_left = True


def _readable(said: _Output) -> str:
    return behind(said.before, lines_as_seen(said.lines))
