"""Output of tasks, as files beside the database: a folder per run, a file per stream.

The database is only read, to check the ownership of the run, so output delays no checkpoint and no
renewal. A file's name encodes its stream. A folder's name has the number of its run, which is never
reused: remains of a pruned run cannot be taken for output of a later run with the same id.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import apsw
import msgspec

from tenure.model.codec import decode, storable
from tenure.model.errors import LeaseLost, RunNotFound, StoreRejected, StoreUnavailable
from tenure.model.update import Fencing
from tenure.ports.store import LogKey, LogName, LogSlice
from tenure.stores.sqlite.rows import Statements

_seqs = msgspec.json.Decoder(dict[str, int])


class OutputLogs:
    """Has a thread and a connection of its own."""

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
            with open(output.prepare(key), "ab+", opener=_private) as stream:
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
    """Needs no connection: a run of many hosts has many files, and other calls must not wait."""
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


_MAX_NAME_CHARS = 200
_LONG = "long,"
_NAME = re.compile(
    r"(?P<step>-?\d+),(?P<host>[^,]*),(?:item(?P<item>-?\d+),)?"
    r"attempt(?P<attempt>-?\d+),(?P<stream>[^,]*)\.\w+",
    re.ASCII,
)
_FOLDER = re.compile(r"(\d+)-.*", re.ASCII)
_keys = msgspec.json.Decoder(LogKey)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class RunOutput(NamedTuple):
    """The folder of one run."""

    seq: int
    folder: Path

    def file(self, key: LogKey) -> Path:
        return self.folder / file_name(key)

    def prepare(self, key: LogKey) -> Path:
        """Make the folder; a name too long for its stream gets a ``.key`` file beside it."""
        path = self.file(key)
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        if path.name.startswith(_LONG):
            beside = path.with_suffix(".key")
            if not beside.exists():
                beside.write_bytes(msgspec.json.encode(key))
        return path

    def streams(self) -> list[LogKey]:
        """Streams that are not empty, by step, host, item, attempt, stream."""
        found: list[LogKey] = []
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                key = _key_of(Path(entry.path))
                if key is not None and entry.stat().st_size:
                    found.append(key)
        return sorted(found, key=_order)

    def remove(self) -> None:
        """May be called again, and by several processes at once."""
        with suppress(FileNotFoundError):
            for path in list(self.folder.iterdir()):
                path.unlink(missing_ok=True)
            self.folder.rmdir()


class LogFiles:
    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, seq: int, run_id: str) -> RunOutput:
        return RunOutput(seq, self.root / f"{seq}-{quote(run_id, safe='')[:_MAX_NAME_CHARS]}")

    def all(self) -> Iterator[RunOutput]:
        """Every folder, also of pruned runs."""
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                match = _FOLDER.fullmatch(entry.name)
                if match:
                    yield RunOutput(int(match[1]), Path(entry.path))


def file_name(key: LogKey) -> str:
    """Safe on any file system, and unique also where case is ignored."""
    item = [] if key.item is None else [f"item{key.item}"]
    parts = (
        str(key.step),
        quote(key.host, safe=""),
        *item,
        f"attempt{key.attempt}",
        quote(key.stream, safe=""),
    )
    text = ",".join(parts)
    digest = hashlib.sha256(text.encode()).hexdigest()
    name = f"{text}.{digest[:8]}"
    return name if len(name) <= _MAX_NAME_CHARS else f"{_LONG}{digest[:40]}"


def _key_of(path: Path) -> LogKey | None:
    """``None`` for another file."""
    key = _long_key(path) if path.name.startswith(_LONG) else _named(path.name)
    return key if key is not None and file_name(key) == path.name else None


def _named(name: str) -> LogKey | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return LogKey(
        step=int(match["step"]),
        host=unquote(match["host"]),
        item=None if match["item"] is None else int(match["item"]),
        attempt=int(match["attempt"]),
        stream=unquote(match["stream"]),
    )


def _long_key(path: Path) -> LogKey | None:
    with suppress(OSError, msgspec.MsgspecError):
        return _keys.decode(path.with_suffix(".key").read_bytes())
    return None


def _order(key: LogKey) -> tuple[int, str, int, int, str]:
    return key.step, key.host, -1 if key.item is None else key.item, key.attempt, key.stream
