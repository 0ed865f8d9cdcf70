"""Output of tasks, as files beside the database.

One file per stream. The database is asked only whether the writer still owns the run; the bytes
never pass through it, so output of any size delays no checkpoint and no renewal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

import apsw
import msgspec

from tenure.model.codec import decode, storable
from tenure.model.errors import LeaseLost, RunNotFound, StoreRejected, StoreUnavailable
from tenure.model.update import Fencing
from tenure.ports.store import LogKey, LogName, LogSlice
from tenure.stores.sqlite.log_files import LogFiles, RunOutput
from tenure.stores.sqlite.statements import Statements

_seqs = msgspec.json.Decoder(dict[str, int])


class Logging:
    """Runs in a thread of its own, with its own connection for the ownership check."""

    def __init__(self, connection: apsw.Connection, files: LogFiles) -> None:
        self._sql = Statements(connection)
        self._files = files

    def append(self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes) -> int:
        row = self._sql.first("ownership", run_id)
        if row is None:
            raise RunNotFound(run_id)
        seq, fence, owner_id = row
        if (fence, owner_id) != (fencing.fence, fencing.owner_id):
            raise LeaseLost(run_id, fence=fence, owner_id=owner_id)
        output, key = self._files.of(seq, run_id), storable(run_id, key)
        try:
            with output.prepare(key).open("ab+") as stream:
                return _continue(run_id, stream.fileno(), offset, data)
        except OSError as error:
            raise StoreUnavailable(f"cannot write output to {output.folder}: {error}") from error

    def read(self, run_id: str, key: LogKey, offset: int, limit: int) -> LogSlice:
        path, offset = self.find(run_id).file(storable(run_id, key)), max(offset, 0)
        try:
            with path.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(offset)
                return LogSlice(offset=offset, data=stream.read(max(limit, 0)), size=size)
        except FileNotFoundError:
            self.find(run_id)  # pruned meanwhile?
            return LogSlice(offset=offset, data=b"", size=0)
        except OSError as error:
            raise StoreUnavailable(f"cannot read output from {path}: {error}") from error

    def sizes(self, names: Collection[LogName]) -> dict[LogName, int]:
        run_ids = json.dumps([run_id for run_id, _ in names])
        seqs = decode(_seqs, self._sql.one("seqs_by_id", run_ids)[0])
        return {
            (run_id, key): _size(self._files.of(seqs[run_id], run_id).file(storable(run_id, key)))
            for run_id, key in names
            if run_id in seqs
        }

    def find(self, run_id: str) -> RunOutput:
        row = self._sql.first("seq_of_run", run_id)
        if row is None:
            raise RunNotFound(run_id)
        return self._files.of(row[0], run_id)


def streams_of(output: RunOutput) -> list[LogKey]:
    """Needs no connection, and no thread that others wait for: a wide run has many files."""
    try:
        return output.streams()
    except OSError as error:
        raise StoreUnavailable(f"cannot read output from {output.folder}: {error}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreUnavailable(f"cannot read output from {path}: {error}") from error


def _continue(run_id: str, descriptor: int, offset: int, data: bytes) -> int:
    size = os.fstat(descriptor).st_size
    known = os.pread(descriptor, len(data), offset) if 0 <= offset < size else b""
    if not 0 <= offset <= size or not data.startswith(known):
        raise StoreRejected(run_id, f"output at {offset} does not continue the {size} bytes kept")
    rest = memoryview(data)[len(known) :]
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    return os.fstat(descriptor).st_size
