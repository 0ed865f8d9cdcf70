"""Folders of programs that were killed before they could remove them.

A living program holds a lock on its folder, which the system releases however the program ends. So
whoever comes next can tell what nobody uses any more, also across containers that share a folder
for temporary files and cannot see each other's processes.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from math import inf

PREFIX = "tenure-exports-"
_RANDOM = 32
_YOUNG = 60.0
"""Seconds in which a folder may have been made and not been locked yet."""


def hold(folder: str) -> int:
    """A descriptor that keeps ``folder`` ours until it is closed."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # without locks nobody can take it for abandoned either
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def sweep(own: str) -> None:
    """Remove abandoned folders beside ``own``. Whatever does not look like ours is left alone."""
    before = os.stat(own).st_mtime - _YOUNG
    with suppress(OSError), os.scandir(os.path.dirname(own)) as entries:
        for entry in entries:
            with suppress(OSError):
                remove_if_abandoned(entry.path, before)


def remove_if_abandoned(folder: str, before: float = inf) -> None:
    """Not if it was touched later than that: it may not have been locked yet. ``OSError`` if it is
    somebody's, or not all of it can be removed."""
    if not os.path.basename(folder).startswith(PREFIX):
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mtime >= before:
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in os.listdir(fd):
            if _is_ours(name):
                with suppress(IsADirectoryError):  # a task's own idea; the rest goes all the same
                    os.unlink(name, dir_fd=fd)
        os.rmdir(folder)
    finally:
        os.close(fd)


def _is_ours(name: str) -> bool:
    """A number, or random hexadecimal digits. Told without ``re``, which no supervisor loads."""
    if name.isascii() and name.isdecimal():
        return True
    return len(name) == _RANDOM and set(name) <= set("0123456789abcdef")
