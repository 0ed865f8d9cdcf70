"""Who waits for a run's file gets its turn, however many others come and go.

Readers share the file's lock, so some of them may have it at every moment, and the system lets new
ones in while a writer waits. So a writer that waits locks a file beside the journal, the gate, and
who finds it locked gives way. Only for a moment: if the writer still has not got in by then, it
waits for somebody who does not move, or is itself stopped, and nobody gains by waiting with it.

It is a courtesy: nothing is wrong, only slower, without it. The system unlocks the gate of the
dead; the file itself goes with the next who waits, or when a store is opened.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from tenure.stores.file.disk import Locked, OpenFile, open_locked

COURTESY = 0.3
"""Seconds. A journal is locked for a small part of that, if whoever has it moves."""


class Gate:
    """Of one call that waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: OpenFile | None = None
        self._ended = False

    @property
    def is_ours(self) -> bool:
        return self._file is not None

    def hold(self, path: Path) -> None:
        """Unless somebody waits who came first, or we may not."""
        with self._lock, suppress(OSError, Locked):
            if self._file is None and not self._ended:
                OpenFile(path, os.O_RDWR | os.O_CREAT).close()
                self._file = open_locked(path, exclusive=True)

    def end(self) -> None:
        """For good: also what still looks in another thread does not hold it again."""
        with self._lock:
            self._ended = True
            file, self._file = self._file, None
            if file is not None and not file.closed:  # else it is the one of whom we were forked
                with file, suppress(OSError):
                    file.path.unlink()


def is_held(path: Path) -> bool:
    try:
        file = OpenFile(path, os.O_RDONLY)
    except OSError:
        return False
    with file:
        return not file.lock(fcntl.LOCK_SH | fcntl.LOCK_NB)
