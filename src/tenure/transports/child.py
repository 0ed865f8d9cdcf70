"""A process of ours while it runs.

Three things can happen: it prints, a stream of it closes, it ends. It is over when it has ended and
both streams are closed. A descendant may hold the streams open after the end; it gets the grace
period, then what is left of the process group is killed and only what was printed until then is
still handed over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from asyncio import AbstractEventLoop
from collections import deque
from contextlib import suppress
from logging import getLogger

from tenure.ports.transport import Output
from tenure.transports import group
from tenure.transports.pipes import Feed, Inflow
from tenure.transports.reaping import Watch, leave_behind, watch
from tenure.transports.spawn import Spawned

_log = getLogger(__name__)


class Child:
    def __init__(
        self, loop: AbstractEventLoop, spawned: Spawned, stdin: bytes, grace: float
    ) -> None:
        self._loop = loop
        self._process: subprocess.Popen[bytes] = spawned.process
        self.pid = spawned.process.pid
        self.grace = grace
        self.ended = False
        self.outlived = False
        """Whether it ended, and what it started had to be killed."""
        self._known = False
        self._arrived: deque[tuple[Inflow, bytes]] = deque()
        self._change: asyncio.Future[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._streams = (
            Inflow(loop, "stdout", spawned.stdout, self._took),
            Inflow(loop, "stderr", spawned.stderr, self._took),
        )
        self._feed = Feed(loop, spawned.stdin, stdin) if spawned.stdin is not None else None
        self._watch: Watch | None = None

    def begin(self) -> None:
        """``OSError`` if the system has nothing left to watch it with."""
        self._watch = watch(self._loop, self.pid, self._noticed_end)
        for stream in self._streams:
            stream.begin()
        if self._feed is not None:
            self._feed.begin()

    @property
    def over(self) -> bool:
        return self.ended and not self._streams[0].open and not self._streams[1].open

    async def hand_over(self, output: Output) -> None:
        """Everything it prints, in the order it came, until it is over."""
        while True:
            while self._arrived:
                stream, data = self._arrived.popleft()
                try:
                    await output.write(stream.name, data)
                finally:
                    stream.taken(len(data))
            if self.over:
                return
            self._change = self._loop.create_future()
            await self._change

    def reap(self) -> int | None:
        """Its exit code, negative for a signal; it must have ended. ``None``: another part of this
        program took the status, and nobody can know."""
        if self._process.returncode is None:
            status = self._watch.reap() if self._watch else None
            self._known = status is not None
            # Popen learns it too, or it would complain of a process nobody waited for.
            self._process.returncode = os.waitstatus_to_exitcode(status or 0)
        return self._process.returncode if self._known else None

    def abandon(self) -> None:
        """Nobody waits for it any more, yet it shall not stay a zombie when it ends."""
        if self._process.returncode is None:
            leave_behind(self.pid)
            self._process.returncode = 0  # or Popen would look for it too

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        if self._feed is not None:
            self._feed.close()
        if self._patience is not None:
            self._patience.cancel()
        if self._watch is not None:
            self._watch.close()

    def _took(self, stream: Inflow, data: bytes) -> None:
        if data:
            self._arrived.append((stream, data))
            self._changed()
        elif self.over:
            self._changed()

    def _noticed_end(self) -> None:
        self.ended = True
        if self.over:
            self._changed()
        else:
            self._patience = self._loop.call_later(self.grace, self._lose_patience)

    def _lose_patience(self) -> None:
        lives = group.lives(self.pid)
        if lives or any(stream.silent for stream in self._streams):
            _log.warning(
                "process %d ended, but what it started kept its output open for another %g s and "
                "is ended too; redirect the output of what shall live on",
                self.pid,
                self.grace,
            )
        if lives:
            self.outlived = True
            with suppress(PermissionError):
                group.send(self.pid, signal.SIGKILL)
        for stream in self._streams:
            stream.end_with_what_is_there()

    def _changed(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
