"""What runner and supervisor say to each other, to the byte, and the supervisor's side of
the connection.

A frame is a header (length of the body, kind, number of the task) and a body. Both sides check
every length before they believe it: what does not fit is ``Malformed`` and ends the connection.
Descriptors travel beside their SPAWN and arrive in order, never later than its first byte.
"""

from __future__ import annotations

import array
import os
import socket
import struct

# Kinds of frames.

# Sent by the runner.
SPAWN, END, END_GROUP, RELEASE, TRUST = range(1, 6)
# Sent by the supervisor.
READY, REFUSED, EXITED, LEADER, UNTRUSTED, GONE, LEFT, FAILED = range(11, 19)

MOST_ASKED = 8 << 20
"""Bytes of a request. No system gives a process more than 6 MiB of arguments and environment."""
MOST_ANSWERED = 64 << 10

_HEADER = struct.Struct("<IBQ")
_SPAWN = struct.Struct("<BddQIIIII")
_END = struct.Struct("<d")
_TRUST = struct.Struct("<Qd")
_REFUSAL = struct.Struct("<iB")
_NUMBER = struct.Struct("<i")

TO_EXECUTE, TO_ENTER, TO_TRUST = range(3)
"""What was refused: the program, its working directory, a task of a run that is not trusted."""


class Malformed(Exception):
    """The other side does not speak this language."""


def frame(kind: int, task: int = 0, body: bytes = b"") -> bytes:
    return _HEADER.pack(len(body), kind, task) + body


class Splitter:
    """Bytes in, whole frames out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = bytearray()

    def split(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """(kind, task, body) of each frame that is complete now."""
        held = self._held
        held += data
        frames: list[tuple[int, int, bytes]] = []
        at = 0
        while len(held) - at >= _HEADER.size:
            length, kind, task = _HEADER.unpack_from(held, at)
            if length > self._most:
                raise Malformed(f"a frame of {length} bytes")
            end = at + _HEADER.size + length
            if len(held) < end:
                break
            frames.append((kind, task, bytes(held[at + _HEADER.size : end])))
            at = end
        del held[:at]
        return frames


class Spawn:
    """A process to start.

    ``until`` is the moment of the boot clock, in nanoseconds, after which nothing of ``run`` may
    be trusted; zero: there is none. ``late_grace`` is what it gets at most, once that has passed.
    ``ids``: of the user it is for (``b"UID GID GROUP…"``); none: of the supervisor's own.
    """

    __slots__ = ("argv", "cwd", "env", "feed", "grace", "ids", "late_grace", "run", "until")

    def __init__(
        self,
        *,
        argv: list[bytes],
        env: dict[bytes, bytes],
        cwd: bytes,
        feed: bool,
        grace: float,
        run: bytes,
        until: int,
        late_grace: float,
        ids: bytes = b"",
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.feed = feed
        self.grace = grace
        self.run = run
        self.until = until
        self.late_grace = late_grace
        self.ids = ids

    def encode(self) -> bytes:
        argv = b"\0".join(self.argv)
        env = b"\0".join([name + b"=" + value for name, value in self.env.items()])
        parts = (self.run, self.cwd, argv, env, self.ids)
        header = (self.feed, self.grace, self.late_grace, self.until, *map(len, parts))
        return _SPAWN.pack(*header) + b"".join(parts)

    @staticmethod
    def decode(body: bytes) -> Spawn:
        feed, grace, late_grace, until, *lengths = _unpack(_SPAWN, body[: _SPAWN.size])
        if len(body) != _SPAWN.size + sum(lengths):
            raise Malformed("a request to start whose lengths do not add up")
        parts: list[bytes] = []
        at = _SPAWN.size
        for length in lengths:
            parts.append(body[at : at + length])
            at += length
        run, cwd, argv, env, ids = parts
        if not argv or not cwd or not min(grace, late_grace) >= 0 or feed > 1:
            raise Malformed("a request to start that says too little")
        pairs = (pair.partition(b"=") for pair in env.split(b"\0") if pair)
        return Spawn(
            argv=argv.split(b"\0"),
            env={name: value for name, _, value in pairs},
            cwd=cwd,
            feed=bool(feed),
            grace=grace,
            run=run,
            until=until,
            late_grace=late_grace,
            ids=ids,
        )


def end(grace: float) -> bytes:
    return _END.pack(grace)


def read_end(body: bytes) -> float:
    (grace,) = _unpack(_END, body)
    if not grace >= 0:
        raise Malformed("a negative grace")
    return float(grace)


def trust(run: bytes, until: int, grace: float) -> bytes:
    """``grace``: what its tasks get at most, once the moment has passed."""
    return _TRUST.pack(until, grace) + run


def read_trust(body: bytes) -> tuple[bytes, int, float]:
    until, grace = _unpack(_TRUST, body[: _TRUST.size])
    if not grace >= 0:
        raise Malformed("a negative grace")
    return body[_TRUST.size :], until, grace


def refusal(number: int, what: int) -> bytes:
    """``number`` is the system's ``errno``."""
    return _REFUSAL.pack(number, what)


def read_refusal(body: bytes) -> tuple[int, int]:
    number, what = _unpack(_REFUSAL, body)
    return number, what


def number(value: int) -> bytes:
    """A wait status (EXITED), a process number (LEADER: the answer to an END, so that a
    short task costs one answer), or how many were signalled (GONE)."""
    return _NUMBER.pack(value)


def read_number(body: bytes) -> int:
    (value,) = _unpack(_NUMBER, body)
    return int(value)


def numbers(values: list[int]) -> bytes:
    return b"".join(map(_NUMBER.pack, values))


def read_numbers(body: bytes) -> list[int]:
    if len(body) % _NUMBER.size:
        raise Malformed("half a number")
    return [value for (value,) in _NUMBER.iter_unpack(body)]


def _unpack(layout: struct.Struct, data: bytes) -> tuple[int, ...]:
    if len(data) != layout.size:
        raise Malformed(f"{len(data)} bytes in place of {layout.size}")
    return layout.unpack(data)


# The supervisor's side of the connection.

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
        """With the next ``flush``; nowhere once the runner is gone."""
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
