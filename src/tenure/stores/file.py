"""Runs as files: one append-only journal per run, for small histories on one machine.

A small example of a store: ``model`` decides (``create``, ``apply``), this module persists. It has
no leases, hence no workers and no takeover; no outbox, hence callbacks are best effort; listing
reads every file.

A journal is one line per version: length, checksum, JSON. A write locks the directory, reads what
other processes appended, appends one line and syncs. Reading takes no lock and ignores an
incomplete last line, which the next write replaces; damage elsewhere is an error that names the
file. A live process holds a lock (``flock``) on the journals of its runs. It needs a local file
system, no network share.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import NamedTuple, Self, TypeVar
from zlib import crc32

import msgspec
from msgspec.structs import replace

from tenure.model.codec import copied, encode, storable
from tenure.model.decide import Circumstances, apply, waits_for_approval
from tenure.model.errors import (
    InvalidRunId,
    RunNotFound,
    StoreError,
    StoreIncompatible,
    StoreUnavailable,
    TenureError,
)
from tenure.model.ids import check_run_id
from tenure.model.leases import already_retried, check_repeated, create, present
from tenure.model.query import Page, RunFilter, bounded_limit, decode_cursor, encode_cursor
from tenure.model.snapshot import RunSnapshot, RunSummary, summarize
from tenure.model.update import (
    NewRun,
    Position,
    Receipt,
    RecordedEvent,
    Update,
    Write,
    receipt,
    record,
    run_id_of,
)
from tenure.ports.environment import Clock
from tenure.stores.place import absolute
from tenure.system import SystemClock

T = TypeVar("T")

SCHEMA = 1
LOCK_TIMEOUT_S = 10.0
"""A process holds the directory's lock only while one write reaches the disk."""
MAX_REPLAYED_RUNS = 256
"""Journals kept in memory; others are read again."""

_RETRY_PAUSE_S = 0.002
_SUFFIX = ".journal"
_HEADER_BYTES = 18
_RESTORE = "Restore the file from a backup, or move it away to go on without this run"
_ADVICE = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space and send the same call again"
    ),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "check owner and mode of the directory and its files, and the mount options",
    ),
    **dict.fromkeys(
        (errno.EEXIST, errno.ENOTDIR),
        "a file store is a directory: name one that exists or can be created; a database file is "
        "sqlite:///path",
    ),
}
_log = logging.getLogger("tenure.stores")
_pause = threading.Event().wait


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: the accepted write, its time and its result, so that replay needs no clock and no
    checks."""

    schema: int
    version: int
    fence: int
    at: datetime
    order: int = 0
    """Place of the run among all runs; only set on its creation."""
    write: Write


_records = msgspec.json.Decoder(Record)


def _record(run: RunSnapshot, write: Write, at: datetime, order: int = 0) -> Record:
    return Record(
        schema=SCHEMA, version=run.version, fence=run.fence, at=at, order=order, write=write
    )


class FileStore:
    """``RunStateStore``, ``EventLog``, ``Definitions`` and ``LiveRuns`` in a directory.

    Any number of processes of one user may share the directory. A run created with an owner is live
    while the store object that created it is open and its process exists; the seconds of its lease
    have no effect.
    """

    durable = True

    def __init__(self, directory: str | os.PathLike[str], clock: Clock | None = None) -> None:
        self._directory = absolute(directory)
        self._clock = clock or SystemClock()
        # Everything below is used in this thread only.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tenure-file")
        self._journals: OrderedDict[str, _Journal] = OrderedDict()
        self._listed: dict[str, _Row] = {}
        self._held: dict[str, int] = {}
        self._warned: set[str] = set()
        self._newest_order = 0
        _make_directory(self._directory)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    async def create_run(self, new: NewRun) -> Receipt:
        return await self._in_thread(lambda: self._create(new))

    async def update_run(self, update: Update) -> Receipt:
        return await self._in_thread(lambda: self._update(update))

    async def get_run(self, run_id: str) -> RunSnapshot:
        return await self._in_thread(lambda: copied(self._get(run_id)))

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await self._in_thread(lambda: self._page(where, limit, cursor))

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        return await self._in_thread(lambda: self._events(run_id, after, max(limit, 1)))

    async def get_definition(self, run_id: str) -> str | None:
        return await self._in_thread(lambda: self._definition(run_id))

    async def is_live(self, run_id: str) -> bool:
        return await self._in_thread(lambda: self._is_live(run_id))

    async def close(self) -> None:
        """Finish pending calls, then release the runs this store holds: reconcile ends those that
        have not ended."""
        await asyncio.to_thread(self._thread.shutdown)
        for run_id in list(self._held):
            self._let_go(run_id)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            answer = self._thread.submit(work)
        except RuntimeError:
            raise StoreUnavailable(
                f"{self._directory}: this store object is closed; open another"
            ) from None
        return await asyncio.wrap_future(answer)

    # Writing, with the directory locked.

    def _create(self, new: NewRun) -> Receipt:
        run_id = check_run_id(new.snapshot.run_id)
        with self._locked() as directory_fd:
            with suppress(RunNotFound), self._opened(run_id, os.O_RDWR) as seen:
                check_repeated(seen.run, seen.journal.update_ids[0], new)
                # Its first writer may have died before the sync.
                _sync(seen.fd)
                os.fsync(directory_fd)
                return receipt(seen.run, 1)
            if new.snapshot.retry_of is not None:
                self._check_no_retry(new.snapshot.retry_of)
            new = storable(run_id, new)
            at = self._clock.now()
            run = create(new, at)
            self._newest_order = max(self._newest_order + 1, round(at.timestamp() * 1_000_000))
            born = _record(run, new, at, self._newest_order)
            path = self._path(run_id)
            with _reported(path), _open(path, os.O_RDWR | os.O_CREAT) as fd:
                try:
                    if new.lease is not None:
                        self._hold(run_id)
                    self._journal(run_id).append(fd, born, run)
                    os.fsync(directory_fd)
                except BaseException:
                    self._let_go(run_id)
                    self._journals.pop(run_id, None)
                    with suppress(OSError):
                        path.unlink()
                    raise
            return receipt(run, 1)

    def _check_no_retry(self, retry_of: str) -> None:
        """``NotRunnable`` if a retry of that chain is active."""
        runs = {row.summary.run_id: row.summary for row in self._rows()}
        root = _root(retry_of, runs)
        for run in runs.values():
            if run.retry_of is not None and not run.ended and _root(run.run_id, runs) == root:
                raise already_retried(retry_of, run.run_id, run.status, waits_for_approval(run))

    def _update(self, update: Update) -> Receipt:
        with self._locked(), self._opened(update.run_id, os.O_RDWR) as seen:
            update = storable(update.run_id, update)
            at = self._clock.now()
            circumstances = Circumstances(
                lease_live=seen.is_live, applied_id=seen.journal.applied_id(update.base_version)
            )
            applied = apply(seen.run, update, at=at, circumstances=circumstances)
            run = applied.snapshot
            if applied.effect is None:
                _sync(seen.fd)  # the update that is repeated may not be durable yet
            else:
                accepted = replace(update, effect=applied.effect, if_unowned=None)
                written = _record(run, accepted, run.updated_at or at)
                seen.journal.append(seen.fd, written, run)
            if run.owner_id is None:
                self._let_go(run.run_id)
            return receipt(run, applied.version)

    def _hold(self, run_id: str) -> None:
        """Lock the journal until the run has no owner, the store closes or the process ends."""
        fd = self._held[run_id] = os.open(self._path(run_id), os.O_RDONLY | os.O_CLOEXEC)
        _lock(fd, fcntl.LOCK_EX)

    def _let_go(self, run_id: str) -> None:
        fd = self._held.pop(run_id, None)
        if fd is not None:
            os.close(fd)

    # Reading, without a lock.

    def _get(self, run_id: str) -> RunSnapshot:
        with self._opened(run_id) as seen:
            return present(seen.run, lease_live=seen.is_live, expires_at=None)

    def _is_live(self, run_id: str) -> bool:
        with self._opened(run_id) as seen:
            return seen.is_live

    def _events(self, run_id: str, after: Position, limit: int) -> list[RecordedEvent]:
        found: list[RecordedEvent] = []
        with self._opened(run_id) as seen:
            for written in seen.journal.records(seen.fd, after.version):
                found += (event for event in _events_of(written) if event.position > after)
                if len(found) >= limit:
                    break
        return found[:limit]

    def _definition(self, run_id: str) -> str | None:
        with self._opened(run_id) as seen:
            first = next(seen.journal.records(seen.fd, 1)).write
            return first.definition if isinstance(first, NewRun) else None

    def _page(self, where: RunFilter, limit: int, cursor: str | None) -> Page[RunSummary]:
        before = decode_cursor("runs", cursor, 2) if cursor else None
        limit = bounded_limit(limit)
        found = [
            row
            for row in self._rows()
            if (before is None or row.place < before) and where.matches(row.summary)
        ]
        found.sort(key=lambda row: row.place, reverse=True)
        page = found[:limit]
        return Page(
            items=tuple(copied(row.summary) for row in page),
            cursor=encode_cursor("runs", *page[-1].place) if len(found) > limit else None,
        )

    def _rows(self) -> Iterator[_Row]:
        """All runs but those with a damaged file, which are logged once."""
        with _reported(self._directory):
            names = os.listdir(self._directory)
        for run_id in filter(None, map(_run_of, names)):
            try:
                yield self._row(run_id)
            except RunNotFound:
                continue
            except StoreIncompatible as damage:
                if str(damage) not in self._warned:
                    self._warned.add(str(damage))
                    _log.warning("run %s is left out of all lists: %s", run_id, damage)

    def _row(self, run_id: str) -> _Row:
        known = self._listed.get(run_id)
        if known is not None:
            with suppress(OSError):
                status = os.stat(self._path(run_id))
                if (status.st_ino, status.st_size) == known.identity:
                    return known
        with self._opened(run_id) as seen:
            run = present(seen.run, lease_live=seen.is_live, expires_at=None)
            tie = int(sha256(run_id.encode()).hexdigest()[:15], 16)
            identity = (seen.journal.inode, seen.journal.end)
            row = _Row((seen.journal.order, tie), summarize(run), identity)
        if run.owner_id is None:  # an owner may die without the file changing
            self._listed[run_id] = row
        return row

    # Files.

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The directory's descriptor, locked against other processes."""
        give_up_at = monotonic() + LOCK_TIMEOUT_S
        with _reported(self._directory), _open(self._directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
            while not _lock(fd, fcntl.LOCK_EX):
                if monotonic() > give_up_at:
                    raise StoreUnavailable(
                        f"{self._directory} has been locked by another process for "
                        f"{LOCK_TIMEOUT_S:.0f} s: look for a stopped or hung process that has it "
                        f"open (fuser {quote(str(self._directory))}), and send the same call again"
                    )
                _pause(_RETRY_PAUSE_S)
            yield fd

    @contextmanager
    def _opened(self, run_id: str, flags: int = os.O_RDONLY) -> Iterator[_Seen]:
        """The run's journal, replayed to its end. ``RunNotFound``."""
        path = self._path(run_id)
        with _reported(path):
            try:
                fd = os.open(path, flags | os.O_CLOEXEC)
            except FileNotFoundError:
                self._journals.pop(run_id, None)
                os.stat(self._directory)  # a missing store is another error
                raise RunNotFound(run_id) from None
            try:
                is_held, journal = _is_held(fd), self._journal(run_id)
                journal.catch_up(fd)
                run = journal.run
                if run is None:  # its creation was cut short
                    raise RunNotFound(run_id)
                # The owner locks before its first line and unlocks after its last: without a lock
                # both before and after this read, it is gone.
                is_live = run.owner_id is not None and (is_held or _is_held(fd))
                yield _Seen(fd, journal, run, is_live)
            finally:
                os.close(fd)

    def _journal(self, run_id: str) -> _Journal:
        journal = self._journals.pop(run_id, None) or _Journal(self._path(run_id), run_id)
        self._journals[run_id] = journal
        while len(self._journals) > MAX_REPLAYED_RUNS:
            self._journals.popitem(last=False)
        return journal

    def _path(self, run_id: str) -> Path:
        try:
            return self._directory / _file_name(check_run_id(run_id))
        except InvalidRunId:
            raise RunNotFound(run_id) from None


class _Row(NamedTuple):
    place: tuple[int, int]
    """Unique and constant: the cursor of a page."""
    summary: RunSummary
    identity: tuple[int, int]
    """Inode and size of the file."""


class _Journal:
    """One run's file, replayed. Later calls read only the lines appended since."""

    def __init__(self, path: Path, run_id: str) -> None:
        self._path = path
        self._run_id = run_id
        self._forget()

    def _forget(self) -> None:
        self.run: RunSnapshot | None = None
        self.inode = 0
        self.order = 0
        self.update_ids: list[str] = []
        """By version."""
        self._starts: list[int] = []
        """By version: the offset of its line."""
        self.end = 0
        """End of the complete lines."""

    def catch_up(self, fd: int) -> None:
        status = os.fstat(fd)
        if status.st_ino != self.inode or status.st_size < self.end:  # e.g. restored from a backup
            self._forget()
            self.inode = status.st_ino
        for line in _lines(fd, self.end):
            written = self._decoded(line, self.end)
            self._take(written, self._replayed(written), len(line) + 1)

    def append(self, fd: int, written: Record, run: RunSnapshot) -> None:
        """One more durable line, all or nothing: the incomplete line of a crash is cut off first;
        if ours fails it is removed, or cut off by the next write."""
        line, end = frame(encode(written)), self.end
        try:
            status = os.fstat(fd)
            if status.st_size > end:
                os.ftruncate(fd, end)
            rest = memoryview(line)
            while rest:
                rest = rest[os.pwrite(fd, rest, end + len(line) - len(rest)) :]
            _sync(fd)
            self.inode = status.st_ino
        except BaseException:
            self._forget()  # it is unknown what reached the disk
            with suppress(OSError):
                os.ftruncate(fd, end)
            raise
        self._take(written, run, len(line))

    def applied_id(self, base_version: int | None) -> str | None:
        """The id of the update written on that base."""
        if base_version is None or not 0 <= base_version < len(self.update_ids):
            return None
        return self.update_ids[base_version]

    def records(self, fd: int, first: int) -> Iterator[Record]:
        """From version ``first`` on."""
        starts = self._starts[max(first, 1) - 1 :]
        if starts:
            for start, line in zip(starts, _lines(fd, starts[0]), strict=False):
                yield self._decoded(line, start)

    def _decoded(self, line: bytes, start: int) -> Record:
        place, payload = f"{self._path}, byte {start}", unframe(line)
        if payload is None:
            raise StoreIncompatible(f"{place}: this line is damaged. {_RESTORE}")
        with suppress(msgspec.MsgspecError, ValueError, RecursionError):
            written = _records.decode(payload)
            if written.schema <= SCHEMA:
                return written
        raise StoreIncompatible(
            f"{place}: no record that this version of Tenure can read. If a newer one wrote it, "
            "upgrade Tenure on this machine"
        )

    def _replayed(self, written: Record) -> RunSnapshot:
        """The run after that line; checks were made when it was written."""
        write, version = written.write, len(self._starts) + 1
        try:
            if isinstance(write, NewRun):
                run = create(write, written.at)
            elif self.run is not None:
                run = apply(self.run, write, at=written.at, checks=()).snapshot
            else:
                raise StoreError("a creation must stand first")
            if (version, run.fence) != (written.version, written.fence):
                raise StoreError(f"says version {written.version}, where {version} must stand")
            if run.run_id != self._run_id:
                raise StoreError(f"belongs to run {run.run_id!r}")
        except TenureError as error:
            place = f"{self._path}, byte {self.end}"
            raise StoreIncompatible(f"{place}: {error}. {_RESTORE}") from error
        return run

    def _take(self, written: Record, run: RunSnapshot, size: int) -> None:
        self.order = self.order or written.order
        self.run = run
        self.update_ids.append(written.write.update_id)
        self._starts.append(self.end)
        self.end += size


class _Seen(NamedTuple):
    """A run's journal, open and replayed."""

    fd: int
    journal: _Journal
    run: RunSnapshot
    """Shared with the cache: copy it before returning it."""
    is_live: bool


def frame(payload: bytes) -> bytes:
    return b"%08x %08x %s\n" % (len(payload), crc32(payload), payload)


def unframe(line: bytes) -> bytes | None:
    """The payload of a line without its newline; ``None`` if length or checksum do not match."""
    payload = line[_HEADER_BYTES:]
    return payload if frame(payload)[:-1] == line else None


def _lines(fd: int, start: int) -> list[bytes]:
    """The complete ones: a newline is written last."""
    with open(fd, "rb", closefd=False) as file:
        file.seek(start)
        return file.read().split(b"\n")[:-1]


def _events_of(written: Record) -> Iterator[RecordedEvent]:
    write = written.write
    events = write.events if isinstance(write, NewRun) else write.effect.events
    for seq, event in enumerate(events):
        yield record(
            event,
            run_id=run_id_of(write),
            version=written.version,
            seq=seq,
            at=written.at,
            fence=written.fence,
        )


def _root(run_id: str, runs: Mapping[str, RunSummary]) -> str:
    """The first run of its chain of retries."""
    seen: set[str] = set()
    while run_id not in seen and run_id in runs and (retried := runs[run_id].retry_of) is not None:
        seen.add(run_id)
        run_id = retried
    return run_id


def _file_name(run_id: str) -> str:
    """The id, and digits of its hash for file systems that ignore case."""
    return f"{run_id}.{sha256(run_id.encode()).hexdigest()[:8]}{_SUFFIX}"


def _run_of(name: str) -> str | None:
    """``None`` for another program's file."""
    run_id = name.removesuffix(_SUFFIX).rpartition(".")[0]
    return run_id if run_id and name == _file_name(run_id) else None


def _make_directory(path: Path) -> None:
    """Create it durably if missing, but not its parents: a path with a typo would look like an
    empty store."""
    with _reported(path):
        if path.is_dir():
            return
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError as error:
            raise StoreUnavailable(
                f"cannot open {path}: there is no folder {path.parent}. Look at the path; if it is "
                f"right, make the folder: mkdir -p {quote(str(path.parent))}"
            ) from error
        with _open(path.parent, os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """``StoreUnavailable`` with the file and a hint instead of the system's error."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(
            error.errno or 0, "look at the path and the disk, and send the same call again"
        )
        raise StoreUnavailable(f"{path}: {error.strerror or error}; {advice}") from error


@contextmanager
def _open(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int, how: int) -> bool:
    """Without waiting."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(fd: int) -> bool:
    """Whether another descriptor, of this process or another, has it locked."""
    if _lock(fd, fcntl.LOCK_SH):
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False
    return True


def _sync(fd: int) -> None:
    """To the medium: macOS' ``fsync`` stops at the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(fd)
    else:
        fcntl.fcntl(fd, full)
