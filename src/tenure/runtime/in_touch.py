"""Whether this process has been in touch with its store for long enough to judge others by it.

An expired lease says that its owner did not renew. If the store was away, or this process was
frozen (perhaps with everybody else), nobody could: for one renew interval after that, and after the
start, expired leases are left alone, so that their owners get the chance to come back first.

Whoever of this process met the error, it is all of it that was out of touch: a worker without room
claims nothing while the store is away, and hears of it by its writes, renewals and heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tenure.model.errors import StoreUnavailable, TenureError
from tenure.model.leasing import LATE
from tenure.model.pace import Pace

T = TypeVar("T")


class Contact:
    """Of one event loop with one store, for all who ask it something."""

    def __init__(self, renew_interval: float) -> None:
        self.needed = renew_interval
        self.lost()

    def lost(self) -> None:
        """The store did not answer: it counts from now."""
        self.since = asyncio.get_running_loop().time()


class InTouch:
    """As one of those sees it who ask: each has a pace of its own, for how long a store always
    takes depends on what it is asked; and each knows when it means to go on. It counts from when
    it began, too."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._needed = contact.needed
        self._pace = Pace()
        self._awake_since = self._due = asyncio.get_running_loop().time()

    @property
    def long_enough(self) -> bool:
        """Expired leases may be taken."""
        since = max(self._contact.since, self._awake_since)
        lasted = asyncio.get_running_loop().time() - since
        return lasted >= self._needed and not self._was_frozen

    async def asked(self, answer: Awaitable[T]) -> T:
        """What the store says to it; how that went is noted."""
        sent_at = asyncio.get_running_loop().time()
        try:
            said = await answer
        except StoreUnavailable:
            self.lost()
            raise
        except TenureError:
            self.answered(sent_at)
            raise
        self.answered(sent_at)
        return said

    def answered(self, sent_at: float) -> None:
        """What was asked at that moment of the loop's time. Who waited for long was out of touch,
        whatever the answer; unless that is how long this store always takes."""
        now, late = asyncio.get_running_loop().time(), max(LATE, self._needed / 2)
        if self._pace.was_away(sent_at, now, late=late, lease=3 * self._needed):
            self.lost()

    def lost(self) -> None:
        """The store did not answer."""
        self._contact.lost()

    def rests(self, until: float) -> None:
        """This one means to go on at that moment of the loop's time, or before."""
        if self._was_frozen:
            self._awake_since = asyncio.get_running_loop().time()
        self._due = until

    def asks(self) -> None:
        """It waits for the store, which may take a moment to answer."""
        self.rests(asyncio.get_running_loop().time() + self._needed / 2)

    @property
    def _was_frozen(self) -> bool:
        return asyncio.get_running_loop().time() - self._due > self._needed / 2
