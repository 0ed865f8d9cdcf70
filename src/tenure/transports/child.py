"""A process that is our own child, while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
from asyncio import AbstractEventLoop
from contextlib import suppress

from tenure.transports import group
from tenure.transports.plumbing import Ends
from tenure.transports.reaping import Watch, leave_behind, watch
from tenure.transports.streams import Streams


class Child:
    def __init__(
        self,
        loop: AbstractEventLoop,
        process: subprocess.Popen[bytes],
        pipes: Ends,
        stdin: bytes,
        grace: float,
    ) -> None:
        self._loop = loop
        self._process = process
        self.pid = process.pid
        self.grace = grace
        self.streams = Streams(loop, pipes, stdin, grace, self._lose_patience)
        self.outlived = False
        """Whether it ended, and what it started had to be killed."""
        self._known = False
        self._watch: Watch | None = None

    def begin(self) -> None:
        """``OSError`` if the system has nothing left to watch it with."""
        self._watch = watch(self._loop, self.pid, self.streams.note_end)
        self.streams.begin()

    @property
    def ended(self) -> bool:
        return self.streams.ended

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
        self.streams.close()
        if self._watch is not None:
            self._watch.close()

    def _lose_patience(self) -> None:
        self.outlived = group.lives(self.pid)
        self.streams.warn_if_held(self.pid, killed=self.outlived)
        if self.outlived:
            with suppress(PermissionError):
                group.send(self.pid, signal.SIGKILL)
        self.streams.end_with_what_is_there()
