"""One run's file, and the run that comes of reading it.

What was read once is kept: later looks read only what was appended since, by whichever process.
Every method needs ``Journal.lock`` held, those that are given the file need that locked, too. So a
reader has the file locked only while it fetches bytes; what they mean it finds out afterwards.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tenure.model.errors import StoreIncompatible
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import NewRun
from tenure.stores.file.disk import sync, write_all
from tenure.stores.file.frames import HEADER_SIZE, ends_with_record, frame, unframe
from tenure.stores.file.records import Record, decode_record, encode_record, replay
from tenure.stores.file.written import Written, place_in


class Identity(NamedTuple):
    """Same identity, same content."""

    inode: int
    size: int
    changed: int


class Tail(NamedTuple):
    """What was found behind the records that were known, as bytes."""

    status: os.stat_result
    start: int
    content: bytes


class Journal:
    def __init__(self, path: Path, run_id: str) -> None:
        self.lock = threading.Lock()
        self._path = path
        self._run_id = run_id
        self._forget()

    def _forget(self) -> None:
        self._run: RunSnapshot | None = None
        self._starts: list[int] = []
        self._end = 0
        self._inode = 0
        self._newest_header = b""
        self._passed_over = b""
        self.order = 0
        """Place of the run among its siblings."""

    @property
    def run(self) -> RunSnapshot:
        if self._run is None:
            raise RuntimeError(f"{self._path} was not read yet")
        return self._run

    def catch_up(self, fd: int) -> None:
        """Take in what was appended since the last look. A write cut short is passed over."""
        self.take_in(self.fetch(fd))

    def fetch(self, fd: int) -> Tail:
        status = os.fstat(fd)
        start = self._end if self._is_continuation(fd, status) else 0
        with open(fd, "rb", closefd=False) as file:
            file.seek(start)
            return Tail(status, start, file.read(status.st_size - start))

    def take_in(self, tail: Tail) -> None:
        """What was fetched just before."""
        if tail.start == 0:
            self._forget()
            self._inode = tail.status.st_ino
        self._passed_over = b""
        self._read_on(BytesIO(tail.content))
        if self._run is None:
            raise StoreIncompatible(f"{self._path}: the record at byte 0 is damaged. {_WHAT_TO_DO}")

    def _is_continuation(self, fd: int, status: os.stat_result) -> bool:
        """Whether the file still is the one we know, and not one restored or made anew."""
        return (
            status.st_ino == self._inode
            and status.st_size >= self._end
            and self._run is not None
            and os.pread(fd, HEADER_SIZE, self._starts[-1]) == self._newest_header
        )

    def _read_on(self, file: BinaryIO) -> None:
        for line in file:
            payload = unframe(line)
            if payload is None:
                self._check_nothing_follows(line, file)
                self._passed_over = line
                return
            place = self._place(self._end)
            record = decode_record(payload, place)
            run = replay(self._run, record, place)
            if run.run_id != self._run_id:
                raise StoreIncompatible(f"{place}: belongs to run {run.run_id!r}")
            self._take(line, record, run)

    def _check_nothing_follows(self, line: bytes, rest: BinaryIO) -> None:
        """A bad end never was acknowledged; a bad record before a good one was."""
        if ends_with_record(line) or any(map(ends_with_record, rest)):
            raise StoreIncompatible(
                f"{self._place(self._end)}: this record is damaged, though whole ones follow it. "
                f"{_WHAT_TO_DO}"
            )

    def _take(self, line: bytes, record: Record, run: RunSnapshot) -> None:
        if isinstance(record.write, NewRun):
            self.order = record.order
        self._run = run
        self._newest_header = line[:HEADER_SIZE]
        self._starts.append(self._end)
        self._end += len(line)

    def append(self, fd: int, record: Record, run: RunSnapshot) -> None:
        """One more record, durable; ``run`` is what comes of it. All or nothing.

        First a write that was cut short is cut off. If ours fails it is taken back; if even that
        fails it is a write cut short.
        """
        line = frame(encode_record(record))
        end = self._end
        try:
            if os.fstat(fd).st_size > end:
                os.ftruncate(fd, end)
            write_all(fd, line, end)
            sync(fd)
        except BaseException:
            # What reached the disk is unknown now; the next look reads it again.
            self._forget()
            with suppress(OSError):
                os.ftruncate(fd, end)
            raise
        self._take(line, record, run)

    @property
    def doubt(self) -> str | None:
        """What to say of the last look: what ends the file, and is passed over, may once have been
        acknowledged. The newline is written last, so it hardly is a write that was cut short."""
        if not self._passed_over.endswith(b"\n"):
            return None
        return (
            f"{self._place(self._end)}: the last line is no record, and is passed over as a write "
            "that was never acknowledged. If the machine has not lost power since, it was, and the "
            "file is damaged: restore it from a backup before the run is written again"
        )

    def identity(self, tail: Tail) -> Identity | None:
        """``None`` while a write that was cut short hangs on: the next one may be as long."""
        return identity_of(tail.status) if tail.status.st_size == self._end else None

    def written(self) -> Written:
        return Written(self._path, self._starts, len(self._starts), self._end)

    def _place(self, offset: int) -> str:
        return place_in(self._path, offset)


_WHAT_TO_DO = "Restore the file from a backup, or move it away to go on without this run"


def identity_of(status: os.stat_result) -> Identity:
    return Identity(status.st_ino, status.st_size, status.st_mtime_ns)
