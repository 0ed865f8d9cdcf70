"""Whether this process has been in touch with its store for long enough to judge others by it.

An expired lease says that its owner did not renew. If the store was away, or this process was
frozen (perhaps with everybody else), nobody could: for one renew interval after that, and after the
start, expired leases are left alone, so that their owners get the chance to come back first.
"""

from __future__ import annotations

import asyncio


class InTouch:
    """Of one event loop."""

    def __init__(self, renew_interval: float) -> None:
        self._needed = renew_interval
        self._since = asyncio.get_running_loop().time()

    @property
    def long_enough(self) -> bool:
        """Expired leases may be taken."""
        return asyncio.get_running_loop().time() - self._since >= self._needed

    def lost(self) -> None:
        """The store did not answer."""
        self._since = asyncio.get_running_loop().time()

    def woke(self, due: float) -> None:
        """This process went on now, and should have at ``due``."""
        if asyncio.get_running_loop().time() - due > self._needed / 2:
            self.lost()
