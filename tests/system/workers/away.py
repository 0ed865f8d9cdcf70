"""A store that goes away under its workers, and comes back: each kind in its own way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.postgres.server import Server

_HOLDS = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(30_000)
connection.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def away(url: str, server: Server | None) -> Iterator[None]:
    """A server that answers nobody, or a file that another process holds."""
    if server is None:
        with _held(url.removeprefix("sqlite:///")):
            yield
        return
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


@contextmanager
def _held(path: str) -> Iterator[None]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.communicate()
