"""The supervisor's end of the connection."""

from __future__ import annotations

import array
import os
import socket

from tenure.transports.supervisor.frames import MOST_ASKED, Malformed, Splitter

_CHUNK = 64 * 1024
_FDS = 3


class Channel:
    """Never blocks, in neither direction. What cannot be sent yet waits: a few bytes per task."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._splitter = Splitter(MOST_ASKED)
        self._unsent = bytearray()
        self._fds: list[int] = []
        self.open = True

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wants_to_send(self) -> bool:
        return self.open and bool(self._unsent)

    def send(self, frame: bytes) -> None:
        """With the next ``flush``; to nobody once the runner is gone."""
        if self.open:
            self._unsent += frame

    def flush(self) -> None:
        while self._unsent and self.open:
            try:
                sent = self._socket.send(self._unsent, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            del self._unsent[:sent]

    def receive(self) -> list[tuple[int, int, bytes]]:
        """The frames that are there. Closed when the runner is gone."""
        space = socket.CMSG_SPACE(_FDS * 4)
        try:
            data, beside, flags, _ = self._socket.recvmsg(_CHUNK, space, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return []
        except OSError:
            data, beside, flags = b"", [], 0
        for level, kind, packed in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(packed[: len(packed) - len(packed) % fds.itemsize])
                self._fds += fds
        if flags & socket.MSG_CTRUNC:
            # Those of the next task would be taken for the missing ones.
            raise Malformed("descriptors were lost: no room for them")
        if not data:
            self.close()
            return []
        return self._splitter.split(data)

    def take_fds(self, count: int) -> list[int]:
        """The descriptors that came with the frame at hand; the caller closes them."""
        if len(self._fds) < count:
            raise Malformed("descriptors are missing")
        taken, self._fds = self._fds[:count], self._fds[count:]
        return taken

    def close(self) -> None:
        self.open = False
        self._socket.close()
        for fd in self._fds:
            os.close(fd)
        self._fds = []
