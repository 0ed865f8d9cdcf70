"""Writing to a reader that may pause.

A stopped terminal or a pager holds up whoever writes to it. The event loop must not be held up: it
renews leases. So lines go through a thread. What is said of the run's state is never dropped; its
output is, with a note, when too much of it waits.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TextIO

_MOST_WAITING = 5_000


class Printer:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._dropped = 0
        self.reader_left = False
        self._thread = threading.Thread(target=self._write, name="tenure-printer", daemon=True)
        self._thread.start()

    def line(self, text: str) -> None:
        if self._dropped:
            self._waiting.put(f"… {self._dropped} lines of output are not shown here")
            self._dropped = 0
        self._waiting.put(text)

    def passing_line(self, text: str) -> None:
        """May be dropped."""
        if self._waiting.qsize() < _MOST_WAITING:
            self.line(text)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Returns when everything is written, or the reader has left."""
        self._waiting.put(None)
        self._thread.join()

    def _write(self) -> None:
        while (text := self._waiting.get()) is not None:
            if self.reader_left:
                continue
            try:
                self._stream.write(f"{text}\n")
                if self._waiting.empty():
                    self._stream.flush()
            except (OSError, ValueError):  # the reader has left; the run goes on
                self.reader_left = True
