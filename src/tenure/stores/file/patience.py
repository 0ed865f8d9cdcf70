"""How long a store waits for a file that somebody else has locked.

The system frees the locks of the dead, not those of a process that is stopped (``SIGSTOP``, Ctrl-Z,
a frozen container). Every call that waits has one of the store's few threads: so none waits for
ever, and whoever asked hears who it is that holds the file.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from math import inf
from time import monotonic

WRITE_PATIENCE = 10.0
READ_PATIENCE = 3.0
"""Seconds. Others hold a journal for as long as one write takes to reach the disk."""
_CLOSING_PATIENCE = 1.0
"""Seconds for all that still wait when their store is closed."""
_LONGEST_PAUSE = 0.02
_rest = threading.Event().wait


class Patience:
    """Of one store."""

    def __init__(self) -> None:
        self._closed_by = inf

    def looks(self, seconds: float) -> Iterator[None]:
        """Each is one more look at a lock. At least one."""
        since, pause = monotonic(), 0.0005
        while True:
            now = monotonic()
            yield
            if now >= min(since + seconds, self._closed_by):
                return
            # At random, so that nobody is always the one who comes too late.
            _rest(random.uniform(pause / 2, pause))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)

    def end(self) -> None:
        """The store is being closed: what waits now gets a moment, what comes later one look."""
        self._closed_by = monotonic() + _CLOSING_PATIENCE
