"""Whether the file that was opened is still the one under its name.

A file that is removed, moved away or replaced while it is open goes on being read and written, by
this process alone: nobody else will ever see what is written then, and it is gone when the process
ends. So nothing is answered from such a file. Asking costs one system call, next to nothing beside
a commit.
"""

from __future__ import annotations

import os
from pathlib import Path

from tenure.model.errors import StoreLost


class FileOnDisk:
    """``path`` as it is now: just opened."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._identity: tuple[int, int] | None = None
        self._identity = self._look()

    def check(self) -> None:
        """``StoreLost``."""
        found = self._look()
        if self._identity in (found, None):
            return
        what = "removed or moved away" if found is None else "replaced by another file"
        raise StoreLost(
            f"{self._path} was {what} while this process had it open: what it wrote since then is "
            "lost. Put the file back and start again; no run may be going on when it is moved"
        )

    def _look(self) -> tuple[int, int] | None:
        try:
            seen = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # a look that fails proves nothing
            return self._identity
        return seen.st_dev, seen.st_ino
