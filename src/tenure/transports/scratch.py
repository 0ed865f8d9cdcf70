"""Where processes leave what they export: the file ``$TENURE_OUTPUT`` names.

One private folder per transport, made when it is first needed. A file comes into being when a
process writes to it, so a task that exports nothing costs one failed ``open``.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from itertools import count
from secrets import token_hex

from tenure.transports.leftovers import PREFIX, hold, sweep

MOST = 1024 * 1024
"""Bytes of one file that are read."""


class Scratch:
    def __init__(self) -> None:
        self._private = _Folder(0o700)
        self._passable = _Folder(0o711)
        self._numbers = count()

    def file(self, *, for_another_user: bool = False) -> ExportFile:
        """``OSError`` if there is no place for it."""
        if not for_another_user:
            return ExportFile(f"{self._private.path()}/{next(self._numbers)}")
        # That user may pass through the folder, not look into it: the name is the secret.
        path = f"{self._passable.path()}/{token_hex(16)}"
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
        """What was written, at most ``MOST`` bytes, and whether that is not all. Anything that is
        no plain file (a pipe that would block, a link) counts as nothing written."""
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
            shutil.rmtree(self.path, ignore_errors=True)


class _Folder:
    """Made anew when it has vanished: cleaners of temporary files take what looks forgotten, and
    whoever took the name since then is not us."""

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._path: str | None = None
        self._identity = (0, 0)
        self._removal: weakref.finalize[[str, int, int], _Folder] | None = None

    def path(self) -> str:
        if self._path is None or _identity(self._path) != self._identity:
            self._path = self._make()
        return self._path

    def remove(self) -> None:
        if self._removal is not None:
            self._removal()
        self._path = None

    def _make(self) -> str:
        path = tempfile.mkdtemp(prefix=PREFIX)
        held = hold(path)
        if self._removal is not None:
            self._removal()
        # Also when nobody calls close: at the latest when the program ends.
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
    """Only what we made: a forked child that ends leaves its parent's folder alone."""
    if os.getpid() != maker:
        return
    found = os.fstat(held)
    if _identity(path) == (found.st_dev, found.st_ino):
        shutil.rmtree(path, ignore_errors=True)
    os.close(held)
