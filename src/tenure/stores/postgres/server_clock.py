"""What time it is on the server, as far as a client can tell.

Whatever depends on the time is judged inside the statements, or by the server's clock as read with
the locked run. What the record shows of a creation or of an owner's work is stamped by the same
clock as heard in an answer a moment ago, plus what has passed here since: no further trip is needed
to learn it. It is behind by an answer's way, never ahead, for owners count leases from it; and what
was long under way, or long unread because this process stood still, does not count.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from time import monotonic

from tenure.ports.environment import Clock

_TRUSTED_FOR = 10.0
"""Seconds. A server's clock may be set, or another server answer, while nobody asks."""

_SOON = 0.1
"""Seconds from sending to reading. So far behind may be what was heard by the way …"""

_SOON_ENOUGH = 1.0
"""… and so far what was asked for. No answer may come sooner from a server far away, and to ask
before each write would double the trips."""


class ServerClock:
    """``given``: a clock that a test has put in the place of the server's."""

    def __init__(self, given: Clock | None = None) -> None:
        self._given = given
        self._heard: datetime | None = None
        self._heard_at = 0.0

    def heard(self, at: datetime, sent_at: float, *, asked: bool = False) -> None:
        """``sent_at`` by ``monotonic``. If that took too long, what was heard before stays."""
        now = monotonic()
        if now - sent_at <= (_SOON_ENOUGH if asked else _SOON):
            self._heard, self._heard_at = at, now

    def now(self) -> datetime | None:
        """``None``: ask again."""
        if self._given is not None:
            return self._given.now()
        passed = monotonic() - self._heard_at
        if self._heard is None or passed > _TRUSTED_FOR:
            return None
        return self._heard + timedelta(seconds=passed)
