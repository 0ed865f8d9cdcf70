"""Where the records of a run stand, as of one moment. They never change, so this may be read
without any lock, through a descriptor that was opened before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tenure.model.errors import StoreIncompatible
from tenure.stores.file.frames import unframe
from tenure.stores.file.records import Record, decode_record


class Written(NamedTuple):
    path: Path
    starts: list[int]
    """Of the records; more may be added to the list meanwhile, and none taken away."""
    versions: int
    end: int

    def record(self, fd: int, version: int) -> Record | None:
        """The record that made ``version``; ``None`` if there is no such version yet."""
        if not 1 <= version <= self.versions:
            return None
        start = self.starts[version - 1]
        end = self.starts[version] if version < self.versions else self.end
        payload = unframe(os.pread(fd, end - start, start))
        place = place_in(self.path, start)
        if payload is None:
            raise StoreIncompatible(f"{place}: damaged since it was first read")
        return decode_record(payload, place)

    def records(self, fd: int, first: int) -> Iterator[Record]:
        for version in range(max(first, 1), self.versions + 1):
            record = self.record(fd, version)
            if record is not None:
                yield record


def place_in(path: Path, offset: int) -> str:
    return f"{path}, byte {offset}"
