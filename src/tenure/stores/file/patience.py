"""How long a store waits for a file that somebody else has locked.

The system frees the locks of the dead, not those of a process that is stopped (``SIGSTOP``, Ctrl-Z,
a frozen container). So nobody waits for ever, and whoever asked hears who it is that holds the
file.
"""

from __future__ import annotations

import random
import threading
from math import inf
from time import monotonic

WRITE_PATIENCE = 10.0
READ_PATIENCE = 3.0
"""Seconds. Others hold a journal for as long as one write takes to reach the disk."""
_CLOSING_PATIENCE = 1.0
"""Seconds for all that still wait when their store is closed."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
_AT_THAT_PACE = 4
"""Calls that may look that often; if more are under way, each looks less often."""


class Patience:
    """Of one store."""

    def __init__(self) -> None:
        self._closed_by = inf
        self._under_way = 0
        self._changed = threading.Condition()

    def is_over(self, since: float, seconds: float) -> bool:
        return monotonic() >= min(since + seconds, self._closed_by)

    def pause(self, looks: int) -> float:
        """Before one more look, at random: so nobody is always the one who comes too late."""
        longest = _LONGEST_PAUSE * max(1.0, self._under_way / _AT_THAT_PACE)
        pause = min(_SHORTEST_PAUSE * 2 ** min(looks, 30), longest)
        return random.uniform(pause / 2, pause)  # noqa: S311

    def one_more(self) -> None:
        """A call is under way."""
        with self._changed:
            self._under_way += 1

    def one_less(self) -> None:
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """The store is being closed: what waits now gets a moment, what comes later one look.
        Returns when nothing is under way. A call whose event loop was stopped never ends: such
        are not waited for."""
        self._closed_by = monotonic() + _CLOSING_PATIENCE
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, 2 * _CLOSING_PATIENCE)
