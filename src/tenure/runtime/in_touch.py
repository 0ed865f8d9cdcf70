"""Whether this process has been in touch with its store for long enough to judge others by it.

An expired lease says that its owner did not renew. If the store was away, or this process was
frozen (perhaps with everybody else), nobody could: for one renew interval after that, and after the
start, expired leases are left alone, so that their owners get the chance to come back first.
"""

from __future__ import annotations

import asyncio

from tenure.model.leasing import LATE
from tenure.model.pace import Pace


class InTouch:
    """Of one event loop."""

    def __init__(self, renew_interval: float) -> None:
        self._needed = renew_interval
        self._pace = Pace()
        self._since = self._due = asyncio.get_running_loop().time()

    @property
    def long_enough(self) -> bool:
        """Expired leases may be taken."""
        lasted = asyncio.get_running_loop().time() - self._since
        return lasted >= self._needed and not self._was_frozen

    def answered(self, sent_at: float) -> None:
        """What was asked at that moment of the loop's time. Who waited for long was out of touch,
        whatever the answer; unless that is how long this store always takes."""
        now, late = asyncio.get_running_loop().time(), max(LATE, self._needed / 2)
        if self._pace.was_away(sent_at, now, late=late, lease=3 * self._needed):
            self.lost()

    def lost(self) -> None:
        """The store did not answer."""
        self._since = asyncio.get_running_loop().time()

    def rests(self, until: float) -> None:
        """This process means to go on at that moment of the loop's time, or before."""
        if self._was_frozen:
            self.lost()
        self._due = until

    def asks(self) -> None:
        """It waits for the store, which may take a moment to answer."""
        self.rests(asyncio.get_running_loop().time() + self._needed / 2)

    @property
    def _was_frozen(self) -> bool:
        return asyncio.get_running_loop().time() - self._due > self._needed / 2
