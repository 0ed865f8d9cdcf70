"""What the runner has to say to its supervisor, in order, without ever waiting for it."""

from __future__ import annotations

import array
import errno
import socket
import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from tenure.transports.plumbing import Ends

_AT_ONCE = 64
_A_MOMENT = 0.01


class _Waiting:
    __slots__ = ("frame", "given")

    def __init__(self, frame: bytes, given: Ends | None) -> None:
        self.frame = memoryview(frame)
        self.given = given

    def let_go(self) -> None:
        if self.given is not None:
            self.given.close()
            self.given = None


class Sender:
    """Used from any thread: what says that a lease holds must not wait for a busy loop."""

    def __init__(self, loop: AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._socket = connection
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._posted = False
        self._writing = False
        self._closed = False

    @property
    def connected(self) -> bool:
        return not self._closed

    def send(self, frame: bytes, given: Ends | None = None) -> bool:
        """Now, or as soon as there is room. ``given`` travels with it and is closed here then.
        False: nobody is there any more, and nobody got it."""
        with self._lock:
            self._append(frame, given)
            self._flush()
            return not self._closed

    def post(self, frame: bytes) -> None:
        """With what is sent next, at the latest in the loop's next round. From the loop only."""
        with self._lock:
            self._append(frame, None)
            if self._posted or self._loop.is_closed():
                return
            self._posted = True
        self._loop.call_soon(self._send_posted)

    def shut(self) -> None:
        """Nothing comes any more; the other side hears that after all that was sent."""
        with self._lock:
            self._flush()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Nothing that waits will be sent."""
        with self._lock:
            self._closed = True
            self._drop()
            if self._writing and not self._loop.is_closed():
                self._loop.remove_writer(self._socket)

    def _append(self, frame: bytes, given: Ends | None) -> None:
        self._queue.append(_Waiting(frame, given))
        if self._closed:
            self._drop()

    def _send_posted(self) -> None:
        with self._lock:
            self._posted = False
            self._flush()

    def _flush(self) -> None:
        while self._queue:
            batch = self._batch()
            try:
                sent = self._socket.sendmsg(
                    [each.frame for each in batch], _beside(batch[-1].given), socket.MSG_NOSIGNAL
                )
            except BlockingIOError:
                self._in_loop(self._wait_for_room)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:  # too many descriptors are on their way
                    self._in_loop(self._try_again)
                else:  # nobody is there; whoever reads will notice
                    self._closed = True
                    self._drop()
                return
            batch[-1].let_go()  # they went with the first byte
            self._strike_out(sent)

    def _batch(self) -> list[_Waiting]:
        """As much as one call may carry: descriptors of one task, with the last frame."""
        batch: list[_Waiting] = []
        for each in self._queue:
            batch.append(each)
            if each.given is not None or len(batch) == _AT_ONCE:
                break
        return batch

    def _strike_out(self, sent: int) -> None:
        while sent:
            first = self._queue[0]
            if sent < len(first.frame):
                first.frame = first.frame[sent:]
                return
            sent -= len(first.frame)
            self._queue.popleft()

    def _drop(self) -> None:
        while self._queue:
            self._queue.popleft().let_go()

    # A full connection

    def _in_loop(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody can wait any more
            self._loop.call_soon_threadsafe(act)

    def _wait_for_room(self) -> None:
        if not self._writing and not self._closed:
            self._writing = True
            self._loop.add_writer(self._socket, self._room)

    def _room(self) -> None:
        self._loop.remove_writer(self._socket)
        self._writing = False
        self._send_posted()

    def _try_again(self) -> None:
        self._loop.call_later(_A_MOMENT, self._send_posted)


def _beside(given: Ends | None) -> list[tuple[int, int, array.array[int]]]:
    if given is None:
        return []
    fds = array.array("i", [given.stdout, given.stderr])
    if given.stdin is not None:
        fds.append(given.stdin)
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
