"""Where output lies: a folder per run, in it a file per stream, whose name says which.

So there is no list of streams to keep in step with the files: the folder is the list. A folder
bears the number of its run, which is never given again: what a pruned run left behind cannot be
taken for the output of a later run of the same id.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from tenure.ports.store import LogKey

_LONGEST_NAME = 200
_LONG = "long,"
_NAME = re.compile(
    r"(?P<step>-?\d+),(?P<host>[^,]*),(?:item(?P<item>-?\d+),)?"
    r"attempt(?P<attempt>-?\d+),(?P<stream>[^,]*)\.\w+",
    re.ASCII,
)
_FOLDER = re.compile(r"(\d+)-.*", re.ASCII)
_keys = msgspec.json.Decoder(LogKey)


class RunOutput(NamedTuple):
    """The folder of one run."""

    seq: int
    folder: Path

    def file(self, key: LogKey) -> Path:
        return self.folder / file_name(key)

    def prepare(self, key: LogKey) -> Path:
        """Make room for the stream. Beside a name that cannot say it all lies a file that does."""
        path = self.file(key)
        self.folder.mkdir(parents=True, exist_ok=True)
        if path.name.startswith(_LONG):
            beside = path.with_suffix(".key")
            if not beside.exists():
                beside.write_bytes(msgspec.json.encode(key))
        return path

    def streams(self) -> list[LogKey]:
        """Those with anything in them, by step, host, item, attempt, stream."""
        found: list[LogKey] = []
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                key = _key_of(Path(entry.path))
                if key is not None and entry.stat().st_size:
                    found.append(key)
        return sorted(found, key=_order)

    def remove(self) -> None:
        """As often as one likes, and by several at once."""
        with suppress(FileNotFoundError):
            for path in list(self.folder.iterdir()):
                path.unlink(missing_ok=True)
            self.folder.rmdir()


class LogFiles:
    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, seq: int, run_id: str) -> RunOutput:
        return RunOutput(seq, self.root / f"{seq}-{quote(run_id, safe='')[:_LONGEST_NAME]}")

    def all(self) -> Iterator[RunOutput]:
        """Every folder there is, also those of runs that are gone."""
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                match = _FOLDER.fullmatch(entry.name)
                if match:
                    yield RunOutput(int(match[1]), Path(entry.path))


def file_name(key: LogKey) -> str:
    """Harmless on any file system, and different for different keys also where case is lost."""
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
    return name if len(name) <= _LONGEST_NAME else f"{_LONG}{digest[:40]}"


def _key_of(path: Path) -> LogKey | None:
    """``None`` for a file that is no stream."""
    key = _spelled_out(path) if path.name.startswith(_LONG) else _named(path.name)
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


def _spelled_out(path: Path) -> LogKey | None:
    with suppress(OSError, msgspec.MsgspecError):
        return _keys.decode(path.with_suffix(".key").read_bytes())
    return None


def _order(key: LogKey) -> tuple[int, str, int, int, str]:
    return key.step, key.host, -1 if key.item is None else key.item, key.attempt, key.stream
