"""Output of tasks, as files beside the database.

One file per stream. The database is asked only whether the writer still owns the run; the bytes
never pass through it, so output of any size delays no checkpoint and no renewal.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

import apsw

from tenure.model.codec import storable
from tenure.model.errors import LeaseLost, RunNotFound, StoreRejected, StoreUnavailable
from tenure.model.update import Fencing
from tenure.ports.log_store import LogKey, LogSlice
from tenure.stores.sqlite.statements import Statements

_LONGEST_NAME = 120


class Logging:
    """Runs in a thread of its own, with its own connection for the ownership check."""

    def __init__(self, connection: apsw.Connection, folder: Path) -> None:
        self._sql = Statements(connection)
        self._folder = folder

    def append(self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes) -> int:
        row = self._sql.first("ownership", run_id)
        if row is None:
            raise RunNotFound(run_id)
        fence, owner_id = row
        if (fence, owner_id) != (fencing.fence, fencing.owner_id):
            raise LeaseLost(run_id, fence=fence, owner_id=owner_id)
        path = self._path(run_id, storable(run_id, key))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as stream:
                return _continue(run_id, stream.fileno(), offset, data)
        except OSError as error:
            raise StoreUnavailable(f"cannot write output to {path}: {error}") from error

    def read(self, run_id: str, key: LogKey, offset: int, limit: int) -> LogSlice:
        if self._sql.first("ownership", run_id) is None:
            raise RunNotFound(run_id)
        path, offset = self._path(run_id, storable(run_id, key)), max(offset, 0)
        try:
            with path.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(offset)
                return LogSlice(offset=offset, data=stream.read(max(limit, 0)), size=size)
        except FileNotFoundError:
            return LogSlice(offset=offset, data=b"", size=0)
        except OSError as error:
            raise StoreUnavailable(f"cannot read output from {path}: {error}") from error

    def _path(self, run_id: str, key: LogKey) -> Path:
        item = "" if key.item is None else f"-item{key.item}"
        name = f"{key.step}-{_file_name(key.host)}{item}-{key.attempt}.{_file_name(key.stream)}"
        return self._folder / _file_name(run_id) / name


def _continue(run_id: str, descriptor: int, offset: int, data: bytes) -> int:
    size = os.fstat(descriptor).st_size
    known = os.pread(descriptor, len(data), offset) if 0 <= offset < size else b""
    if not 0 <= offset <= size or not data.startswith(known):
        raise StoreRejected(run_id, f"output at {offset} does not continue the {size} bytes kept")
    rest = memoryview(data)[len(known) :]
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    return os.fstat(descriptor).st_size


def _file_name(text: str) -> str:
    """Harmless on any file system, and different for different texts also where case is lost."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{quote(text, safe='')[:_LONGEST_NAME].lstrip('.')}.{digest}"
