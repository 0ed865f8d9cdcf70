"""Another process has the file: it is waited for, and whoever waits for us is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic

_log = logging.getLogger("tenure.stores")

UNNOTICED = 2.0
"""Seconds; shorter waits are part of sharing a file."""
LOCK_PATIENCE = 60.0
"""Seconds to wait for another process's transaction before the caller hears of it."""
_ONCE_MORE = 1.0
"""Seconds for who asks when others have waited in vain: enough to get a turn in a shared file."""
_OUT_OF_SIGHT = 5.0
"""Seconds without a look at the lock, after which whoever holds it counts as somebody else."""

rest = threading.Event().wait
"""Not cut short by closing: whoever asked for a write is owed its answer."""


class Holdup:
    """Of one store. The first of its threads that has waited for too long says so, the first that
    then gets through says that it is over."""

    def __init__(self, path: Path, patience: float | None = None) -> None:
        self._path = path
        self._patience = patience
        self._guard = threading.Lock()
        self._told: float | None = None
        """Since when, as was said."""
        self._over_at = 0.0

    @property
    def patience(self) -> float:
        """Seconds until whoever waits hears of it."""
        return LOCK_PATIENCE if self._patience is None else self._patience

    def lasts(self, since: float) -> None:
        with self._guard:
            # Who waits for one of our own, just after all were waiting, has not waited for long.
            if self._told is None and monotonic() - max(since, self._over_at) >= UNNOTICED:
                self._told = since
                _log.warning(
                    "the store does not answer: another process holds %s; waiting for it",
                    self._path,
                )

    def is_over(self) -> None:
        with self._guard:
            self._over_at = monotonic()
            if self._told is not None:
                took, self._told = self._over_at - self._told, None
                _log.warning("the store answers again after %.1f s", took)


class LockWait:
    """How one thread waits for the file, and for how long.

    The patience is the store's, not that of each piece of work: all of them wait for the same
    process. What stood in line meanwhile has waited as long as the one before it, and gives up with
    it; what is asked for afterwards tries once more, for a moment.
    """

    def __init__(self, holdup: Holdup) -> None:
        self._holdup = holdup
        self._since: float | None = None
        """Since when the file has been held, as far as this thread has seen."""
        self._looked_at = 0.0
        self._give_up_at = inf
        self._unwanted: Callable[[], bool] = lambda: False

    def begin(self, asked_at: float, unwanted: Callable[[], bool] = lambda: False) -> None:
        """It is the turn of something that was asked for at that time. ``unwanted``: nobody waits
        for it any more."""
        now = monotonic()
        self._unwanted = unwanted
        if self._since is not None and now - self._looked_at > _OUT_OF_SIGHT:
            self._since = now
        since = now if self._since is None else self._since
        patience = self._holdup.patience
        self._give_up_at = max(since + patience, asked_at + min(patience, _ONCE_MORE))

    @property
    def in_vain(self) -> bool:
        """Whether it is time to tell whoever asked."""
        return monotonic() > self._give_up_at or self._unwanted()

    @property
    def seconds(self) -> float:
        """How long the file has been held."""
        return 0.0 if self._since is None else monotonic() - self._since

    def pause(self, seconds: float) -> None:
        """Between two looks at the lock."""
        self._looked_at = monotonic()
        if self._since is None:
            self._since = self._looked_at
        self._holdup.lasts(self._since)
        rest(seconds)

    def got_through(self) -> None:
        if self._since is not None:
            self._since = None
            self._holdup.is_over()
