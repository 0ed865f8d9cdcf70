"""What goes into a process and what comes out of it, over non-blocking pipes.

Pipes are read in the event loop: no thread per process, no copy beyond the chunk that is handed
on. Nothing here waits.
"""

from __future__ import annotations

import array
import fcntl
import os
import termios
from asyncio import AbstractEventLoop
from collections.abc import Callable

CHUNK = 64 * 1024
"""What one read takes: as much as a pipe holds by default."""
BUFFERED = 3 * CHUNK
"""Reading pauses when this much waits to be taken, so a stream never holds more than one chunk
beyond it: 256 KiB."""


class Inflow:
    """One stream of a process. ``arrived`` gets every chunk, and ``b""`` once at the end."""

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
        """Open, and all it ever gave has been taken: it waits for a process, not for its reader."""
        return self.open and not self._waiting

    def taken(self, size: int) -> None:
        """Whoever keeps the output has taken ``size`` bytes."""
        self._waiting -= size
        if not self._reading and self.open and self._waiting < BUFFERED:
            self.begin()

    def end_with_what_is_there(self) -> None:
        """Whatever is in the pipe now is still read; what is written later is not."""
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
    """Standard input: given as fast as the process reads it, closed at the end of the data."""

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
