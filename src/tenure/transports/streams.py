"""What is said to a process and by it, from its start until it is over.

Three things can happen: it prints, a stream of it closes, it ends. It is over when it has ended and
both streams are closed. A descendant may hold the streams open after the end; it gets the grace
period, then ``held_open`` is asked to do something about it.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from logging import getLogger

from tenure.ports.execution import Output
from tenure.transports.pipes import Feed, Inflow
from tenure.transports.plumbing import Ends

_log = getLogger(__name__)


class Streams:
    def __init__(
        self,
        loop: AbstractEventLoop,
        pipes: Ends,
        stdin: bytes,
        grace: float,
        held_open: Callable[[], None],
    ) -> None:
        self.ended = False
        self._loop = loop
        self._grace = grace
        self._held_open = held_open
        self._arrived: deque[tuple[Inflow, bytes]] = deque()
        self._change: asyncio.Future[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._inflows = (
            Inflow(loop, "stdout", pipes.stdout, self._took),
            Inflow(loop, "stderr", pipes.stderr, self._took),
        )
        self._feed = Feed(loop, pipes.stdin, stdin) if pipes.stdin is not None else None

    def begin(self) -> None:
        for inflow in self._inflows:
            inflow.begin()
        if self._feed is not None:
            self._feed.begin()

    @property
    def over(self) -> bool:
        return self.ended and not self._inflows[0].open and not self._inflows[1].open

    async def hand_over(self, output: Output) -> None:
        """Everything it prints, in the order it came, until it is over."""
        while True:
            while self._arrived:
                inflow, data = self._arrived.popleft()
                try:
                    await output.write(inflow.name, data)
                finally:
                    inflow.taken(len(data))
            if self.over:
                return
            self._change = self._loop.create_future()
            await self._change

    def note_end(self) -> None:
        """The process has ended; who holds its streams open now is somebody else."""
        if self.ended:
            return
        self.ended = True
        if self.over:
            self._changed()
        else:
            self._patience = self._loop.call_later(self._grace, self._held_open)

    def end_with_what_is_there(self) -> None:
        """What is in the pipes now is still handed over; what is written later is not."""
        self.ended = True
        for inflow in self._inflows:
            inflow.end_with_what_is_there()
        if self.over:
            self._changed()

    def warn_if_held(self, pid: int | None, *, killed: bool) -> None:
        """Tell, before they are cut off, if it is a process that holds them, not their reader."""
        if killed or any(inflow.silent for inflow in self._inflows):
            _log.warning(
                "process %s ended, but what it started kept its output open for another %g s: it "
                "is cut off, and the rest of the process group is ended; redirect the output of "
                "what shall live on",
                pid,
                self._grace,
            )

    def close(self) -> None:
        for inflow in self._inflows:
            inflow.close()
        if self._feed is not None:
            self._feed.close()
        if self._patience is not None:
            self._patience.cancel()

    def _took(self, inflow: Inflow, data: bytes) -> None:
        if data:
            self._arrived.append((inflow, data))
            self._changed()
        elif self.over:
            self._changed()

    def _changed(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)


class UntilItFails:
    """Whoever keeps the output may be the reason why the process is ended; that must not keep the
    process from printing its last words and ending well."""

    def __init__(self, output: Output | None) -> None:
        self._output = output

    async def write(self, stream: str, data: bytes) -> None:
        if self._output is None:
            return
        try:
            await self._output.write(stream, data)
        except Exception:  # noqa: BLE001 - the first reason to end it is the one that is raised
            self._output = None
