"""Nobody begins a new log beside a database whose log was taken away under those who use it.

They notice, and stop; as the last of them ends, SQLite brings what they wrote from the log they
still have into the file. Whoever had begun a new log by then would lose that, and its own runs:
two logs would be written into the same pages. So who comes anew waits until they have ended.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic

from tenure.model.errors import StoreUnavailable
from tenure.stores.lock_holder import readers_of
from tenure.stores.sqlite.holdup import LockWait

_SETTLED = 1.0
"""Seconds. Somebody may just be opening the file, or closing it."""


def refuse_abandoned_wal(path: Path, lock: LockWait) -> None:
    """``path`` is about to be opened; no part of it is a link."""
    log = f"{path}-wal"
    deadline = monotonic() + _SETTLED
    # What may not be looked at is not there for us, nor has it readers: opening it is refused.
    while not os.path.exists(log) and (pids := readers_of(path)):
        if monotonic() > deadline:
            others = ", ".join(map(str, pids))
            raise StoreUnavailable(
                f"{log} was removed or moved away while others had the database open (process "
                f"{others}): stop them and start again. What they wrote last is saved as they stop "
                "by themselves; it is lost if they are killed"
            )
        lock.pause(0.01)
