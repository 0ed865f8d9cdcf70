"""The time-out of an attempt, which excludes the time its commands wait for a free slot."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from tenure.ports.execution import Command, Endpoint, Exit, Output, Transport
from tenure.ports.store import TakesTurns


class TimeLimit:
    """Like ``asyncio.timeout``, but paused while all commands of the attempt wait for a slot of
    the transport.

    It runs while any of them has a slot: a command that hangs would else keep the slot that the
    others wait for.
    """

    def __init__(self, seconds: float) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._left: float | None = None
        """Seconds left while it is paused."""
        self._waiting = self._begun = 0

    def timed(self, transport: Transport) -> Transport:
        """The transport for the attempt, which reports waiting commands to this limit."""
        return _TimedTransport(transport, self) if isinstance(transport, TakesTurns) else transport

    @property
    def expired(self) -> bool:
        return self._timeout.expired()

    def count(self, *, waiting: int = 0, begun: int = 0) -> None:
        self._waiting += waiting
        self._begun += begun
        stands_still = bool(self._waiting and not self._begun)
        if stands_still is (self._left is None):
            with suppress(RuntimeError):  # it has expired, or the attempt has ended
                self._turn(asyncio.get_running_loop().time())

    def _turn(self, now: float) -> None:
        """Pause, or continue."""
        if self._left is not None:
            self._timeout.reschedule(now + self._left)
            self._left = None
        elif (when := self._timeout.when()) is not None:
            self._timeout.reschedule(None)
            self._left = when - now

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._timeout.__aexit__(kind, error, traceback)


class _TimedTransport:
    def __init__(self, transport: TakesTurns, limit: TimeLimit) -> None:
        self._transport = transport
        self._limit = limit

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        begun = 0

        def begins() -> None:
            nonlocal begun
            begun = 1
            self._limit.count(waiting=-1, begun=1)

        self._limit.count(waiting=1)
        try:
            return await self._transport.run_in_turn(host, command, output, begins)
        finally:
            self._limit.count(waiting=begun - 1, begun=-begun)

    async def close(self) -> None:
        await self._transport.close()
