"""Standard input, output and error of a process, over non-blocking pipes.

Pipes are read in the event loop: no thread per process, and no copy beyond the chunk that is passed
on. A process is over when it has ended and both its streams are closed. A descendant may hold them
open after the end: it gets the grace period, then ``held_open`` is called.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import termios
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from logging import getLogger
from typing import NamedTuple

from tenure.ports.execution import Output


class Ends(NamedTuple):
    """One end of each stream of a process."""

    stdin: int | None
    stdout: int
    stderr: int

    def all(self) -> list[int]:
        return [fd for fd in self if fd is not None]

    def close(self) -> None:
        for fd in self.all():
            os.close(fd)


def lay_pipes(*, feed: bool) -> tuple[Ends, Ends]:
    """This side's ends, which are non-blocking, and the process's, to be closed here once it has
    them. Raises ``OSError`` if no descriptors are left; then nothing stays open."""
    opened: list[tuple[int, int]] = []
    try:
        opened.extend(os.pipe() for _ in range(3 if feed else 2))
    except OSError:
        for pair in opened:
            os.close(pair[0])
            os.close(pair[1])
        raise
    (out, their_out), (err, their_err) = opened[:2]
    their_in, into = opened[2] if feed else (None, None)
    ours = Ends(into, out, err)
    for fd in ours.all():
        os.set_blocking(fd, False)
    return ours, Ends(their_in, their_out, their_err)


CHUNK = 64 * 1024
"""Bytes of one read: the default capacity of a pipe."""
BUFFERED = 3 * CHUNK
"""Reading pauses when so many bytes wait for the receiver, so a stream holds at most one chunk
more: 256 KiB."""


class Inflow:
    """One output stream. ``arrived`` is called with every chunk, and with ``b""`` at the end."""

    __slots__ = ("_allowance", "_arrived", "_fd", "_loop", "_reading", "_waiting", "name")

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: str,
        fd: int,
        arrived: Callable[[Inflow, bytes], None],
    ) -> None:
        self.name = name
        self._loop = loop
        self._fd = fd
        self._arrived = arrived
        self._waiting = 0
        self._allowance: int | None = None
        self._reading = False

    def begin(self) -> None:
        self._loop.add_reader(self._fd, self._read)
        self._reading = True

    @property
    def open(self) -> bool:
        return self._fd >= 0

    @property
    def silent(self) -> bool:
        """Open and completely read: it waits for a process, not for the receiver."""
        return self.open and not self._waiting

    def taken(self, size: int) -> None:
        """The receiver of the output has taken ``size`` bytes."""
        self._waiting -= size
        if not self._reading and self.open and self._waiting < BUFFERED:
            self.begin()

    def end_with_what_is_there(self) -> None:
        """Read what is in the pipe now, and nothing that is written later."""
        if not self.open:
            return
        size = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, size)
        self._allowance = size[0]
        if not self._allowance:
            self._end()

    def close(self) -> None:
        if not self.open:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _read(self) -> None:
        allowance = self._allowance
        try:
            data = os.read(self._fd, CHUNK if allowance is None else min(CHUNK, allowance))
        except BlockingIOError:  # a false alarm
            return
        if not data:
            self._end()
            return
        self._waiting += len(data)
        if self._waiting >= BUFFERED:
            self._loop.remove_reader(self._fd)
            self._reading = False
        self._arrived(self, data)
        if allowance is not None:
            self._allowance = allowance - len(data)
            if not self._allowance:
                self._end()

    def _end(self) -> None:
        self.close()
        self._arrived(self, b"")


class Feed:
    """Standard input: written as fast as the process reads it, closed at the end of the data."""

    __slots__ = ("_fd", "_left", "_loop", "_waiting")

    def __init__(self, loop: AbstractEventLoop, fd: int, data: bytes) -> None:
        self._loop = loop
        self._fd = fd
        self._left = memoryview(data)
        self._waiting = False

    def begin(self) -> None:
        self._write()

    def close(self) -> None:
        if self._fd < 0:
            return
        if self._waiting:
            self._loop.remove_writer(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._fd, self._left) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # it has read all it wants
            self.close()
            return
        if not self._left:
            self.close()
        elif not self._waiting:
            self._loop.add_writer(self._fd, self._write)
            self._waiting = True


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
        self._grace_timer: asyncio.TimerHandle | None = None
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
        """Pass all output on, in the order it arrived, until the process is over."""
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
        """The process has ended; if its streams are still open, a descendant holds them."""
        if self.ended:
            return
        self.ended = True
        if self.over:
            self._changed()
        else:
            self._grace_timer = self._loop.call_later(self._grace, self._held_open)

    def end_with_what_is_there(self) -> None:
        """Pass on what is in the pipes now, and nothing that is written later."""
        self.ended = True
        for inflow in self._inflows:
            inflow.end_with_what_is_there()
        if self.over:
            self._changed()

    def warn_if_held(self, pid: int | None, *, killed: bool) -> None:
        """Log, before the streams are cut off, if a process holds them open and not a slow
        receiver."""
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
        if self._grace_timer is not None:
            self._grace_timer.cancel()

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
    """Drops output once its receiver has raised: the process is ended for that reason, and can
    still write its last output and end well."""

    def __init__(self, output: Output | None) -> None:
        self._output = output

    async def write(self, stream: str, data: bytes) -> None:
        if self._output is None:
            return
        try:
            await self._output.write(stream, data)
        except Exception:  # noqa: BLE001 - the first error is the one that is raised
            self._output = None
