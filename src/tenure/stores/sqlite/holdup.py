"""Another process has the file: it is waited for, and whoever waits for us is told."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from time import monotonic

_log = logging.getLogger("tenure.stores")

UNNOTICED = 2.0
"""Seconds; shorter waits are part of sharing a file."""


class Holdup:
    """Of one store. The first of its threads that has waited for too long says so, the first that
    then gets through says that it is over."""

    def __init__(self, path: Path, patience: float | None = None) -> None:
        self._path = path
        self.patience = patience
        """Seconds until whoever waits hears of it; ``None``: as long as usual."""
        self._guard = threading.Lock()
        self._told: float | None = None
        """Since when, as was said."""
        self._over_at = 0.0

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
    """How one thread waits for the file."""

    def __init__(self, holdup: Holdup) -> None:
        self._holdup = holdup
        self._since: float | None = None
        # Not cut short by closing: whoever asked for a write is owed its answer.
        self._rest = threading.Event().wait

    def pause(self, seconds: float) -> None:
        """Between two looks at the lock."""
        if self._since is None:
            self._since = monotonic()
        self._holdup.lasts(self._since)
        self._rest(seconds)

    def got_through(self) -> None:
        if self._since is not None:
            self._since = None
            self._holdup.is_over()
