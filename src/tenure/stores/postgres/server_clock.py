"""What time it is on the server, as far as a client can tell.

Ownership is judged inside the statements, by the server's clock at that instant. What a record
shows, when it was created or when a host started, is stamped by the same clock as heard in an
answer a moment ago, plus what has passed here since: behind by an answer's way at most, never
ahead, and no further trip is needed to learn it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from time import monotonic

from tenure.ports.clock import Clock

_TRUSTED_FOR = 10.0
"""Seconds. A server's clock may be set, or another server answer, while nobody asks."""


class ServerClock:
    """``given``: a clock that a test has put in the place of the server's."""

    def __init__(self, given: Clock | None = None) -> None:
        self._given = given
        self._heard: datetime | None = None
        self._heard_at = 0.0

    def heard(self, at: datetime) -> None:
        self._heard, self._heard_at = at, monotonic()

    def now(self) -> datetime | None:
        """``None``: ask again."""
        if self._given is not None:
            return self._given.now()
        passed = monotonic() - self._heard_at
        if self._heard is None or passed > _TRUSTED_FOR:
            return None
        return self._heard + timedelta(seconds=passed)
