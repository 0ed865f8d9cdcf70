"""The pipes between us and a process."""

from __future__ import annotations

import os
from typing import NamedTuple


class Ends(NamedTuple):
    """One end of each of its streams: ours, or those it is given."""

    stdin: int | None
    stdout: int
    stderr: int

    def all(self) -> list[int]:
        return [fd for fd in self if fd is not None]

    def close(self) -> None:
        for fd in self.all():
            os.close(fd)


def lay_pipes(*, feed: bool) -> tuple[Ends, Ends]:
    """Our ends, which never block, and the process's, to be closed here as soon as it has them.
    ``OSError`` if there are no descriptors left; then nothing stays open."""
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
