"""The standard streams: closed ones at the start, and readers that leave."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

TYPE_CHECKING = False  # needed before anything heavy is loaded
if TYPE_CHECKING:
    from typing import TextIO


def prepare_streams() -> None:
    """Replace closed streams (``>&-``), and make file names and terminals that are not UTF-8
    harmless."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDWR) < fd:
                pass
            setattr(sys, name, open(fd, "w" if fd else "r"))  # noqa: SIM115  for good
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def for_answers_only() -> redirect_stdout[TextIO]:
    """Keep stdout for the command's answer while it executes tasks: prints of Python functions go
    to stderr, so that programs can read each line of the answer."""
    return redirect_stdout(sys.stderr)


def discard(stream: TextIO) -> None:
    """Discard what cannot be written. The interpreter would try again at exit, and report a
    failure."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
