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

from tenure.stores.file.disk import OpenFile, sync, write_all
from tenure.stores.file.names import Names, is_temporary


@contextmanager
def create_file(names: Names, run_id: str, content: bytes) -> Iterator[bool]:
    """Within the block the file is there and locked: nobody has seen it. False: name taken.

    If the block fails the file is taken back.
    """
    path, temporary = names.journal(run_id), names.temporary(run_id)
    with OpenFile(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
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
        with suppress(OSError), OpenFile(path, os.O_RDWR) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
