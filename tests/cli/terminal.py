"""A terminal of our own around a command: what a person would see, and keys they would press."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from types import TracebackType
from typing import Self

from tests.cli.conftest import TENURE

_PATIENCE = 30.0


class Terminal:
    def __init__(
        self, *arguments: str, columns: int = 80, lines: int = 24, term: str = "xterm-256color"
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        env = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [TENURE, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "TERM": term},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self.seen = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def read_until(self, words: str) -> str:
        """Everything seen up to ``words``, which have not been seen before."""
        start = len(self.seen)
        while words not in self.seen[start:]:
            assert self._read(), f"{words!r} never came: {self.seen}"
        return self.seen[start:]

    def finish(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(_PATIENCE)

    def _read(self) -> bool:
        poll = select.poll()
        poll.register(self._master, select.POLLIN)
        assert poll.poll(_PATIENCE * 1000), f"nothing came for {_PATIENCE} s: {self.seen}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how Linux says that the other side has closed
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
