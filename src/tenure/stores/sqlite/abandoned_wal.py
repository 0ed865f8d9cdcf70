"""Nobody begins a new log beside a database whose log was taken away under those who use it.

They notice, and stop; as the last of them ends, SQLite brings what they wrote from the log they
still have into the file. Whoever had begun a new log by then would lose that, and its own runs:
two logs would be written into the same pages. So who comes anew waits until they have ended.

Whether there are any is asked of SQLite's own locks: they tell of every process that has the file
open, in whatever container, and of this one. A file descriptor of ours must not be used for that:
closing it would take this process's locks away from the connections it has already.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import apsw

from tenure.model.errors import StoreUnavailable
from tenure.stores.lock_holder import readers_of
from tenure.stores.sqlite.holdup import LockWait

_SETTLED = 1.0
"""Seconds. Somebody may just be opening the file, or closing it, or asking this very question."""
_SHARED = range(0x40000002, 0x40000002 + 510)
"""The bytes that everybody locks who has the file open (fileformat: SHARED_FIRST, SHARED_SIZE)."""
_READ_VERSION = 19
"""The byte that says how the file is to be read."""
_BY_LOG = b"\x02"


def refuse_abandoned_wal(path: Path, lock: LockWait) -> None:
    """``path`` is about to be opened; no part of it is a link."""
    log = f"{path}-wal"
    deadline = monotonic() + _SETTLED
    while not os.path.exists(log) and _is_open(path):
        if monotonic() > deadline:
            raise StoreUnavailable(
                f"{log} was removed or moved away while the database was open in {_users(path)}: "
                "stop all that use it and start again. What they wrote last is saved as they stop "
                "by themselves; it is lost if they are killed"
            )
        lock.pause(random.uniform(0.01, 0.05))  # noqa: S311  who ask at once are in the way


def _is_open(path: Path) -> bool:
    """Whether anybody has it open whose commits go to a log."""
    if not _has_content(path):
        return False
    with _looked_at(path) as (file, writable):
        if file.xRead(1, _READ_VERSION) != _BY_LOG:
            return False
        # Whoever can be seen is not asked by a lock of ours: while we have it, however short, the
        # last of them could not save its log as it closes.
        return bool(readers_of(path, _SHARED)) or (writable and not _can_be_had_alone(file))


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > _READ_VERSION
    except OSError:  # what may not be looked at has no users for us: opening it is refused
        return False


@contextmanager
def _looked_at(path: Path) -> Iterator[tuple[apsw.VFSFile, bool]]:
    """As SQLite has it, before it knows that it is a database; and whether we may write it."""
    asked_and_given = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    file = apsw.VFSFile("", str(path), asked_and_given)
    try:
        yield file, not asked_and_given[1] & apsw.SQLITE_OPEN_READONLY
    finally:
        file.xClose()


def _can_be_had_alone(file: apsw.VFSFile) -> bool:
    """For a moment. Only who may write it can ask for that."""
    try:
        file.xLock(apsw.SQLITE_LOCK_SHARED)
        file.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)
    except apsw.BusyError:
        return False
    finally:
        file.xUnlock(apsw.SQLITE_LOCK_NONE)
    return True


def _users(path: Path) -> str:
    pids = readers_of(path, _SHARED)
    if pids == [os.getpid()]:
        return "this process"
    if not pids:
        return "processes that cannot be seen from here (of another container, for instance)"
    return f"process {', '.join(map(str, pids))}"
