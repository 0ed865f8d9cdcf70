"""The files for exports of processes, named by ``$TENURE_OUTPUT``.

Each transport has a private folder, created when it is first needed. A file is created by the
process that writes to it, so a task without exports costs one failed ``open``.

A program holds a lock on its folder, which the system releases when the program ends in any way. So
folders of killed programs can be told from those in use, even by containers that share a temporary
folder and cannot see each other's processes. Supervisors load this module: imports that they do not
need are made inside functions.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from math import inf

PREFIX = "tenure-exports-"
_RANDOM = 32
_YOUNG_S = 60.0
"""A younger folder may not be locked yet."""


def hold(folder: str) -> int:
    """Lock ``folder`` until the returned descriptor is closed."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # where locks fail, ``sweep`` removes nothing either
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def sweep(own: str) -> None:
    """Remove abandoned folders beside ``own``."""
    before = os.stat(own).st_mtime - _YOUNG_S
    with suppress(OSError), os.scandir(os.path.dirname(own)) as entries:
        for entry in entries:
            with suppress(OSError):
                remove_if_abandoned(entry.path, before)


def remove_if_abandoned(folder: str, before: float = inf) -> None:
    """Remove an abandoned folder last changed before ``before``; a later one may not be locked yet.
    ``OSError`` if it is in use or cannot be removed completely."""
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
                with suppress(IsADirectoryError):  # made by a task; remove the rest
                    os.unlink(name, dir_fd=fd)
        os.rmdir(folder)
    finally:
        os.close(fd)


def _is_ours(name: str) -> bool:
    """A number, or random hexadecimal digits. Without ``re``, which supervisors do not load."""
    if name.isascii() and name.isdecimal():
        return True
    return len(name) == _RANDOM and set(name) <= set("0123456789abcdef")


MOST = 1024 * 1024
"""Bytes of one file that are read."""


class Scratch:
    def __init__(self) -> None:
        self._private = _Folder(0o700)
        self._passable = _Folder(0o711)
        self._numbers = count()

    def file(self, *, for_another_user: bool = False) -> ExportFile:
        """Raises ``OSError`` if none can be created."""
        if not for_another_user:
            return ExportFile(f"{self._private.path()}/{next(self._numbers)}")
        # The other user may traverse the folder but not list it: the file name is secret.
        path = f"{self._passable.path()}/{os.urandom(_RANDOM // 2).hex()}"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.fchmod(fd, 0o666)
        finally:
            os.close(fd)
        return ExportFile(path)

    def close(self) -> None:
        self._private.remove()
        self._passable.remove()


class ExportFile:
    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> tuple[bytes, bool]:
        """The contents, at most ``MOST`` bytes, and whether they were cut. Empty for anything but a
        regular file (a pipe that would block, a link)."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b"", False
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b"", False
            with open(fd, "rb", closefd=False) as file:
                data = file.read(MOST + 1)
        finally:
            os.close(fd)
        return data[:MOST], len(data) > MOST

    def remove(self) -> None:
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        except OSError:
            import shutil

            shutil.rmtree(self.path, ignore_errors=True)


class _Folder:
    """A folder that is created again if it has vanished (cleaners of temporary files remove old
    ones) or was replaced by another."""

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._path: str | None = None
        self._identity = (0, 0)
        self._removal: Callable[[], object] | None = None

    def path(self) -> str:
        if self._path is None or _identity(self._path) != self._identity:
            self._path = self._make()
        return self._path

    def remove(self) -> None:
        if self._removal is not None:
            self._removal()
        self._path = None

    def _make(self) -> str:
        import tempfile
        import weakref

        path = tempfile.mkdtemp(prefix=PREFIX)
        held = hold(path)
        if self._removal is not None:
            self._removal()
        # At the latest when the program ends, if close is not called.
        self._removal = weakref.finalize(self, _remove, path, held, os.getpid())
        os.chmod(path, self._mode)
        self._identity = _identity(path)
        sweep(path)
        return path


def _identity(path: str) -> tuple[int, int]:
    with suppress(OSError):
        found = os.lstat(path)
        return found.st_dev, found.st_ino
    return 0, 0


def _remove(path: str, held: int, maker: int) -> None:
    """Remove the folder, but not from a forked child of the process that made it."""
    if os.getpid() != maker:
        return
    found = os.fstat(held)
    if _identity(path) == (found.st_dev, found.st_ino):
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    os.close(held)
