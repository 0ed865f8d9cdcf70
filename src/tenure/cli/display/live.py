"""A run on a terminal, while it happens.

A thread of its own draws, at most eight times a second, from counts that the event loop keeps: a
terminal that is stopped or slow never holds up the run. When the run has ended the picture is taken
away; what remains on the screen is the report.
"""

from __future__ import annotations

import threading
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tenure.cli.display.picture import picture
from tenure.cli.display.progress import OutputTail, Progress
from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSnapshot
from tenure.ports.clock import Clock
from tenure.ports.recorder import OutputChunk

_FRAME = 1 / 8
_IDLE = 0.5
"""Seconds without news after which the clock on the screen is moved on."""
_TAIL = 6


class LiveView:
    """A ``Recorder``; to be entered around the run."""

    def __init__(self, console: Console, clock: Clock, place: str) -> None:
        self._console = console
        self._clock = clock
        self._place = place
        self._progress = Progress()
        self._tail = OutputTail(_TAIL)
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
        """Said below the steps, until the end."""
        with self._lock:
            self._notice = text
        self._changed.set()

    def _draw(self) -> None:
        try:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while not self._stopped.wait(_FRAME):
                    self._changed.wait(_IDLE)
                    self._changed.clear()
                    live.update(self._frame(), refresh=True)
        except OSError:
            return  # the terminal is gone; the run goes on

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
