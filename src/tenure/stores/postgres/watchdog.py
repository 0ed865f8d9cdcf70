"""No call waits for ever.

A server that is slow is asked to stop; one that does not answer at all is hung up on. Both by the
client: a time-out set on the server would be session state, which a pooler does not keep, and no
help against a server that has vanished.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg

from tenure.stores.postgres.line import Line

_GRACE = 2.0
"""Seconds for the server to say that it has stopped."""


class Watchdog:
    """Begins to count when it is made."""

    def __init__(self, connection: Line, seconds: float) -> None:
        self.seconds = seconds
        self.tripped = False
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._ask_to_stop)
        self._asking: asyncio.Task[None] | None = None

    def stop(self) -> None:
        self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _ask_to_stop(self) -> None:
        self.tripped = True
        self._asking = self._loop.create_task(self._send_cancel())
        self._timer = self._loop.call_later(_GRACE, self._connection.cut)

    async def _send_cancel(self) -> None:
        with suppress(psycopg.Error, OSError):
            await self._connection.cancel_safe(timeout=_GRACE)
