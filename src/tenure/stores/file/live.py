"""Which runs have a living process: a lock that the system takes away when the process dies.

A run born with an owner is held through a lock on a file beside its journal until it has no
owner any more or the store is closed. There is nothing to renew and nothing to expire.

The lock file is opened, tried, taken and removed only while the journal is locked (for looking:
shared; for the rest: exclusively). So nobody can hold a lock file that somebody else has just
removed, and a look never stands in the way of a holder. A look uses a descriptor of its own:
closing it leaves the holder's lock alone, also within one process.
"""

from __future__ import annotations

import fcntl
import os

from tenure.stores.file.disk import OpenFile
from tenure.stores.file.names import Names


class LiveLocks:
    """The runs this store object holds, and a look at those of others."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._held: dict[str, OpenFile] = {}

    def hold(self, run_id: str) -> None:
        file = OpenFile(self._names.live(run_id), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            file.close()
            raise
        self._held[run_id] = file

    def hold_unless_held(self, run_id: str) -> None:
        """For an owner that repeats its creation, perhaps through another store object."""
        if not self.is_held(run_id):
            self.hold(run_id)

    def is_held(self, run_id: str) -> bool:
        """By anybody, this process included."""
        if self._is_ours(run_id):
            return True
        try:
            file = OpenFile(self._names.live(run_id), os.O_RDONLY)
        except FileNotFoundError:
            return False
        with file:
            return not file.lock(fcntl.LOCK_SH | fcntl.LOCK_NB)

    def drop(self, run_id: str) -> None:
        """Nobody owns the run any more: remove the lock file, whoever made it."""
        try:
            self._names.live(run_id).unlink(missing_ok=True)
        finally:
            self.let_go(run_id)

    def take_back(self, run_id: str) -> None:
        """Undo ``hold``; never touches what somebody else holds."""
        if self._is_ours(run_id):
            self.drop(run_id)

    def let_go(self, run_id: str) -> None:
        """Give up our own hold, if any."""
        file = self._held.pop(run_id, None)
        if file is not None:
            file.close()

    def remove_if_dead(self, run_id: str) -> None:
        """A file nobody holds says no more than no file."""
        if not self.is_held(run_id):
            self.drop(run_id)

    def ours(self) -> list[str]:
        return list(self._held)

    def _is_ours(self, run_id: str) -> bool:
        file = self._held.get(run_id)
        return file is not None and not file.closed
