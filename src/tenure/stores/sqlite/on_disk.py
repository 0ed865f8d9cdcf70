"""Whether the files that were opened are still the ones under their names.

A file that is removed, moved away or replaced while it is open goes on being read and written, by
this process alone: nobody else will ever see what is written then, and it is gone when the process
ends. So nothing is answered from such a file. That goes for the database, for its write-ahead log
(``-wal``), where the newest commits are, and for the index of that (``-shm``), by which processes
hear of one another. Asking costs a system call for each, next to nothing beside a commit.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from tenure.model.errors import StoreLost

_INDEX_EVERY = 4
"""Looks. Without the index nothing that was written is lost yet, so it is looked at more rarely."""
_BESIDE = "It is part of the database: end all that use it, then start again"


class FilesOnDisk:
    """``path`` is just opened."""

    def __init__(self, path: Path) -> None:
        self._database = _File(str(path), "Put the file back and start again")
        self._log: _File | None = None
        self._index: _File | None = None
        self._looks = 0

    def used_by(self, connection: apsw.Connection) -> None:
        """It has read: now SQLite has all of them open, and as long as it has, no program that
        knows what they are removes one."""
        path = connection.filename  # where links lead to: there the others are
        self._log, self._index = _File(f"{path}-wal", _BESIDE), _File(f"{path}-shm", _BESIDE)

    def check(self) -> None:
        """``StoreLost``."""
        self._database.check()
        if self._log is not None:
            self._log.check()
        self._looks += 1
        if self._index is not None and self._looks % _INDEX_EVERY == 0:
            self._index.check()


class _File:
    """``path`` as it is now."""

    def __init__(self, path: str, advice: str) -> None:
        self._path = path
        self._advice = advice
        self._identity: tuple[int, int] | None = None
        self._identity = self._look()

    def check(self) -> None:
        found = self._look()
        if self._identity in (found, None):
            return
        what = "removed or moved away" if found is None else "replaced by another file"
        raise StoreLost(
            f"{self._path} was {what} while this process had it open: what it wrote since then is "
            f"lost. {self._advice}; no run may be going on when it is moved"
        )

    def _look(self) -> tuple[int, int] | None:
        try:
            seen = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # a look that fails proves nothing
            return self._identity
        return seen.st_dev, seen.st_ino
