"""Process groups: all that a command started, unless it left on purpose.

A number is safe to signal while its leader has not been reaped (a zombie keeps it), and after that
as long as the group was seen alive a moment ago: numbers are handed out in turn, and the turn does
not come round within a moment.
"""

from __future__ import annotations

import os
from contextlib import suppress


def send(group: int, number: int) -> None:
    """``PermissionError`` if every process in it belongs to somebody else."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def exists(group: int) -> bool:
    """Whether it has a member, be it a zombie. Costs one call."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def lives(group: int) -> bool:
    """Whether anything in it runs. Zombies do not, though nobody may ever reap them: in many
    containers the first process does not care for orphans. Looks at every process there is."""
    if not exists(group):
        return False
    try:
        names = os.listdir("/proc")
    except OSError:  # a system without: take its word
        return True
    wanted = b"%d" % group
    return any(_runs_in(name, wanted) for name in names if name.isdecimal())


def _runs_in(pid: str, group: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read()
    except OSError:  # gone since it was listed
        return False
    # The command name may hold spaces and parentheses; fields are counted behind the last one.
    state, _, process_group, _ = stat.rpartition(b")")[2].split(maxsplit=3)
    return process_group == group and state not in b"ZX"
