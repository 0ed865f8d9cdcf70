"""Starting a supervisor: a bare interpreter that sees no site packages and no settings."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tenure.system import supervisor_mark
from tenure.transports.reaping import pidfds_work
from tenure.transports.spawn import environment

BOOT = """
import sys
sys.path.append(sys.argv[1])
from tenure.transports.supervisor.program import main
main()
"""
_WHERE_TENURE_IS = str(Path(__file__).parents[3])


class Launched(NamedTuple):
    connection: socket.socket
    pid: int


@cache
def possible() -> bool:
    """Whether this system can have supervisors: subreapers and pidfds are Linux's, and there must
    be an interpreter to start, which a program frozen into one file is not."""
    return (
        sys.platform == "linux"
        and bool(sys.executable)
        and not getattr(sys, "frozen", False)
        and find_spec("_ctypes") is not None
        and Path("/proc/self/stat").exists()
        and pidfds_work()
    )


def launch(token: int, *, task_groups: bool) -> Launched:
    """Whoever launches it takes its status when it ends. ``OSError`` if it cannot be started."""
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [
                sys.executable,
                *("-I", "-S", "-c", BOOT, _WHERE_TENURE_IS),
                *map(str, (theirs.fileno(), os.getpid(), token, int(task_groups))),
                supervisor_mark(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment({}),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    process.returncode = 0  # or Popen would look for it, and complain that nobody waited
    ours.setblocking(False)
    return Launched(ours, process.pid)
