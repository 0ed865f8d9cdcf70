"""The standard streams: whatever they are when the command begins, and when nobody takes any more
what it has to say."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

TYPE_CHECKING = False  # needed before anything heavy is loaded
if TYPE_CHECKING:
    from typing import TextIO


def prepare_streams() -> None:
    """Somebody may have closed them (``>&-``); and a file name or a terminal that is not UTF-8
    must not cost the answer."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDWR) < fd:
                pass
            setattr(sys, name, open(fd, "w" if fd else "r"))  # noqa: SIM115  for good
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def for_answers_only() -> redirect_stdout[TextIO]:
    """While a process executes tasks, only whoever had stdout before writes to it: what a Python
    function prints goes to stderr, and programs can read each line of the answer."""
    return redirect_stdout(sys.stderr)


def let_go(stream: TextIO) -> None:
    """What cannot be written is thrown away. The interpreter would try again when it ends, and
    make a failure of its own of it."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
