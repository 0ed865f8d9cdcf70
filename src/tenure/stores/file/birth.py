"""A journal appears whole or not at all.

Its first record is written and synced under a temporary name and then linked to the real one,
which fails if that is taken. So a journal without a whole first record does not exist, however
the writer died; if one is found it was damaged later.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tenure.stores.file.disk import Locked, OpenFile, open_locked, sync, write_all
from tenure.stores.file.names import Names, is_temporary


@contextmanager
def create_file(names: Names, run_id: str, content: bytes) -> Iterator[bool]:
    """Within the block the file is there and locked: nobody has seen it. False: name taken.

    If the block fails the file is taken back.
    """
    path = names.journal(run_id)
    temporary, file = _temporary_file(names, run_id)
    with file as fd:
        try:
            write_all(fd, content, 0)
            sync(fd)
            created = _link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        try:
            yield created
        except BaseException:
            if created:
                with suppress(OSError):
                    path.unlink()
            raise


def _temporary_file(names: Names, run_id: str) -> tuple[Path, OpenFile]:
    """Locked. Until it is, somebody who sweeps takes it for what a dead writer left."""
    while True:
        path = names.temporary(run_id)
        file = OpenFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            file.lock(fcntl.LOCK_EX)
            if os.fstat(file.fd).st_nlink:
                return path, file
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        file.close()


def _link(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    return True


def sweep_temporaries(directory: Path) -> None:
    """Remove what killed writers left: a living one has its file locked."""
    with os.scandir(directory) as entries:
        found = [Path(entry.path) for entry in entries if is_temporary(entry.name)]
    for path in found:
        with suppress(OSError, Locked), open_locked(path, exclusive=True):
            path.unlink()
