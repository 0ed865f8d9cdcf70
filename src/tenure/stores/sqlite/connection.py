"""A connection to the database file, and the thread that uses it.

Opening it for several processes, migrating its schema, translating its errors. A call is one hop
into the thread and one transaction there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, cached_property
from importlib.resources import files
from itertools import count
from math import inf
from pathlib import Path
from queue import SimpleQueue
from shlex import quote
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import apsw

from tenure.model.errors import (
    StoreError,
    StoreIncompatible,
    StoreLost,
    StoreUnavailable,
    UnknownStore,
)
from tenure.stores.place import absolute

_log = logging.getLogger("tenure.stores")
_pause = threading.Event().wait

T = TypeVar("T")

APPLICATION_ID = 0x54_4E_55_52  # "TNUR"

BUSY_TIMEOUT_S = 60.0
"""For the lock of another process."""
_WARN_AFTER_S = 2.0
_MIN_BUSY_TIMEOUT_S = 0.1
"""For a call whose time passed while it waited behind others."""
_CHECK = "Look at the path, and check owner and mode of it and the folders above it"

_FIXED_IN = (3, 51, 3)
_BACKPORTS = {(3, 50): 7, (3, 44): 6}

DATA_ERRORS = (
    apsw.ConstraintError,
    apsw.TooBigError,
    UnicodeEncodeError,
    OverflowError,
    RecursionError,
    TypeError,
)
"""Errors of a value, not of the database."""
DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError)
DRIVER_ERRORS = (apsw.Error, UnicodeEncodeError, UnicodeDecodeError, OverflowError)


def library_version() -> str:
    return apsw.sqlite_lib_version()


def refuse_wal_reset_bug(version: str = apsw.sqlite_lib_version()) -> None:
    """SQLite before 3.51.3 can corrupt a WAL database when two connections write and checkpoint
    at the same moment, as this store does. ``StoreIncompatible``."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    backport = _BACKPORTS.get((major, minor))
    if (major, minor, patch) >= _FIXED_IN or (backport is not None and patch >= backport):
        return
    raise StoreIncompatible(
        f"SQLite {version} can corrupt a database that several processes write (WAL-reset bug, "
        "fixed in 3.51.3). Install a newer 'apsw' package, which brings its own SQLite"
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raises errors of the driver and the system as ``StoreError``."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translation(path, error) from error
    except OSError as error:
        raise StoreUnavailable(
            f"cannot open {error.filename or path}: {error.strerror or error}. {_CHECK}"
        ) from error


def translation(path: Path, error: Exception) -> StoreError:
    if isinstance(error, (UnicodeEncodeError, OverflowError)):
        return StoreError(f"no such value can be looked up in {path}: {error}")
    if isinstance(error, DAMAGE):
        return StoreIncompatible(
            f"{path} is damaged or not a Tenure database: {error}. Restore a backup, or move the "
            "file away"
        )
    if isinstance(error, apsw.SQLError):
        return StoreIncompatible(
            f"{path} was not made by this version of Tenure ({error}): upgrade Tenure, or move the "
            "file away"
        )
    if isinstance(error, apsw.FullError):
        return StoreUnavailable(
            f"no space left for {path}: nothing was written; free some and try again"
        )
    if isinstance(error, apsw.BusyError):
        return StoreUnavailable(
            f"{path} is locked by another process: nothing was written. Look for a stopped or hung "
            f"process that has it open (fuser {quote(str(path))}), let it go on or end it, and try "
            "again"
        )
    if isinstance(error, apsw.CantOpenError):
        return StoreUnavailable(f"cannot open {path}: {_reason(path, error)}")
    if isinstance(error, apsw.ReadOnlyError):
        return StoreUnavailable(f"cannot write {path}: {_reason(path, error)}")
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(
            f"{path}: {error}; look at the disk, its quota and the limits of file sizes"
        )
    return StoreUnavailable(f"{path}: {error}")


def _reason(path: Path, error: Exception) -> str:
    """Found without opening a file: closing it would release this process's locks."""
    folder = path.parent
    try:
        folder.stat()
        with suppress(FileNotFoundError):
            path.stat()
    except FileNotFoundError:
        return f"there is no folder {folder}. Look at the path, or mkdir -p {quote(str(folder))}"
    except OSError as seen:
        return f"{seen.strerror}. {_CHECK}"
    for file in (path, folder):
        if file.exists() and not os.access(file, os.W_OK):
            return f"this user may not write {file}. Check owner, mode and mount"
    return f"{error}. {_CHECK}, and the limit of open files (ulimit -n)"


class DatabaseFile:
    """The path of the database, and a check that it is still the file that was opened: an open file
    that is removed or replaced would be used on, and its data lost when the process ends."""

    def __init__(self, path: str | Path) -> None:
        """Links are resolved: SQLite puts its other files there. ``UnknownStore``."""
        self.path = _in_utf8(Path(os.path.realpath(_in_utf8(absolute(path)))))
        self._identity: tuple[int, int] | None = None

    @property
    def is_known(self) -> bool:
        return self._identity is not None

    def check(self) -> None:
        """``StoreLost`` if it is not the file of the first call."""
        found = None
        try:
            seen = os.stat(self.path)
            found = seen.st_dev, seen.st_ino
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:  # no proof that it is gone
            return
        if self._identity is None:
            self._identity = found
        elif found != self._identity:
            what = "removed or moved away" if found is None else "replaced by another file"
            raise StoreLost(
                f"{self.path} was {what} while this process had it open: what it wrote since then "
                "is lost. Put the file back and start again; do not move it while runs are active"
            )

    def refuse_other_kinds(self) -> None:
        """SQLite would open some of them, and fail later with a vague error."""
        if self.path.is_dir():
            raise StoreUnavailable(
                f"cannot open {self.path}: it is a folder, and a SQLite store is a file. Name one "
                f"in it, such as {self.path / 'runs.db'}"
            )
        if self.path.exists() and not self.path.is_file():
            raise StoreUnavailable(f"cannot open {self.path}: it is no regular file. {_CHECK}")


def _in_utf8(path: Path) -> Path:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UnknownStore(
            f"the path {str(path)!r} is not UTF-8, and SQLite knows no other; rename it"
        ) from error
    return path


class BusyWait:
    """Waits of a connection while another process has the file locked."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._warn_at = self._give_up_at = 0.0
        self._abandoned: Callable[[], bool] = lambda: False

    def begin(self, asked_at: float, abandoned: Callable[[], bool] = lambda: False) -> None:
        """The timeout counts from the call, so that queued calls give up together. ``abandoned``:
        the caller no longer waits."""
        now = monotonic()
        self._warn_at = now + _WARN_AFTER_S
        shortest = min(self._timeout_s, _MIN_BUSY_TIMEOUT_S)
        self._give_up_at = max(asked_at + self._timeout_s, now + shortest)
        self._abandoned = abandoned

    def again(self, attempt: int) -> bool:
        """SQLite's busy handler: short random waits, so that processes neither spin nor starve."""
        now = monotonic()
        if now > self._give_up_at or self._abandoned():
            return False
        if now > self._warn_at:
            self._warn_at = inf
            _log.warning("another process has locked %s; waiting for it", self._path)
        _pause(random.uniform(0.0002, min(0.0005 * (attempt + 1), 0.01)))  # noqa: S311
        return True

    def retried(self, work: Callable[..., T], *arguments: object) -> T:
        """For the cases in which SQLite does not call its busy handler, such as two processes
        switching a new file to WAL. Work that raised ``BusyError`` was rolled back."""
        for attempt in count():
            try:
                return work(*arguments)
            except apsw.BusyError:
                if not self.again(attempt):
                    raise
        raise AssertionError


def connect(file: DatabaseFile, busy: BusyWait) -> apsw.Connection:
    """Open in WAL mode with synchronous commits; create or migrate if needed."""
    refuse_wal_reset_bug()
    flags = apsw.SQLITE_OPEN_READWRITE
    if file.is_known:
        file.check()
    else:
        flags |= apsw.SQLITE_OPEN_CREATE
        # For its owner alone: SQLite would ask the umask. Its other files get the same mode.
        with suppress(OSError):
            os.close(
                os.open(os.path.realpath(file.path), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            )
    with translated(file.path):
        file.refuse_other_kinds()
        connection = apsw.Connection(str(file.path), flags=flags)
        try:
            _set_up(connection, busy)
            busy.retried(migrate, connection, file.path)
            file.check()
        except BaseException:
            connection.close()
            raise
    return connection


def _set_up(connection: apsw.Connection, busy: BusyWait) -> None:
    # Keep plans: SQLite would plan again for each bound value, in case a partial index suits it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.set_busy_handler(busy.again)
    busy.retried(connection.pragma, "journal_mode", "wal")
    connection.execute("pragma synchronous = full")
    connection.execute("pragma cache_size = -16000")
    connection.execute("pragma temp_store = memory")
    connection.execute("pragma mmap_size = 0")  # a failing disk is an error instead of a SIGBUS


def migrations() -> list[tuple[int, str]]:
    folder = files("tenure.stores.sqlite") / "migrations"
    found = [entry for entry in folder.iterdir() if re.match(r"\d{4}_.*\.sql$", entry.name)]
    return sorted((int(entry.name[:4]), entry.read_text(encoding="utf-8")) for entry in found)


@cache
def newest_schema() -> int:
    return migrations()[-1][0]


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Migrate to this version's schema, under the write lock. ``StoreIncompatible`` for a newer
    one."""
    newest = newest_schema()
    with one_view(connection):  # another process may be migrating
        if _schema_of(connection, path) == newest:
            return
    with _all_or_nothing(connection):
        present = _schema_of(connection, path)
        if present > newest:
            raise StoreIncompatible(_another_schema(path, present, newest))
        for number, text in migrations():
            if number > present:
                connection.execute(text)
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {newest}")


def refuse_another_schema(connection: apsw.Connection) -> None:
    """``StoreIncompatible`` if a newer Tenure has migrated it since it was opened. Cheap enough for
    every transaction: it reads a page that SQLite has read anyway."""
    ((present,),) = connection.execute("pragma user_version")
    if present != newest_schema():
        path = Path(connection.filename)
        raise StoreIncompatible(_another_schema(path, present, newest_schema()))


def _another_schema(path: Path, present: int, newest: int) -> str:
    return (
        f"{path} has schema {present}, this version of Tenure knows up to {newest}: upgrade Tenure "
        "on this machine"
    )


def _schema_of(connection: apsw.Connection, path: Path) -> int:
    application_id = connection.pragma("application_id")
    tables = connection.execute("select count(*) from sqlite_schema").fetchall()[0][0]
    if tables and application_id != APPLICATION_ID:
        raise StoreIncompatible(f"{path} is a database of another program; choose another file")
    return int(connection.pragma("user_version"))


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """A write transaction in a database with this version's schema."""
    with _all_or_nothing(connection):
        refuse_another_schema(connection)
        yield


@contextmanager
def _all_or_nothing(connection: apsw.Connection) -> Iterator[None]:
    """Takes the write lock at once: upgrading a read transaction may fail."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        # SQLite rolls back by itself after a full disk or an I/O error.
        if connection.in_transaction:
            connection.execute("rollback")
        raise


@contextmanager
def savepoint(connection: apsw.Connection) -> Iterator[None]:
    """A part of a transaction that can fail alone."""
    connection.execute("savepoint part")
    try:
        yield
    except BaseException:
        connection.execute("rollback to part")
        raise
    finally:
        if connection.in_transaction:
            connection.execute("release part")


@contextmanager
def one_view(connection: apsw.Connection) -> Iterator[None]:
    """A read transaction: several reads of one moment."""
    connection.execute("begin")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("commit")


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    work: Callable[..., Any]
    arguments: tuple[object, ...]
    asked_at: float


class DatabaseThread:
    """Runs functions one after another, in the order of the calls. Thread and connection are made
    by the first call."""

    def __init__(
        self, file: DatabaseFile, name: str, busy_timeout_s: float, *, reads: bool = False
    ) -> None:
        """``reads``: each function only reads, in one read transaction."""
        self._file = file
        self._reads = reads
        self._busy = BusyWait(file.path, busy_timeout_s)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = threading.Event()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=f"tenure-{name}", daemon=True)

    @cached_property
    def connection(self) -> apsw.Connection:
        """Only for use in this thread."""
        self._busy.begin(monotonic())
        return connect(self._file, self._busy)

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """The result of ``work(*arguments)``. Cancelling the caller does not undo the work."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._guard:
            if self._closing.is_set():
                raise StoreUnavailable(f"{self._file.path}: this store has been closed")
            if self._thread.ident is None:
                self._thread.start()
            self._jobs.put(_Job(loop, answer, work, arguments, monotonic()))
        return await answer

    def close(self) -> None:
        """Finish pending calls, then close the file. May be called twice."""
        with self._guard:
            if not self._closing.is_set():
                self._closing.set()
                self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        if "connection" in self.__dict__:
            self.connection.close()

    # In the thread.

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: object = None
            error: BaseException | None = None
            try:
                result = self._done(job)
            except DRIVER_ERRORS as failed:
                error = translation(self._file.path, failed)
                error.__cause__ = failed
            except BaseException as failed:  # noqa: BLE001  handed to the caller, whatever it is
                error = failed
            _answer(job, result, error)

    def _done(self, job: _Job) -> Any:
        """``StoreLost`` goes before any answer or error: other processes do not see this file."""
        connection = self.connection
        self._busy.begin(job.asked_at, lambda: self._closing.is_set() and job.answer.done())
        try:
            return self._busy.retried(self._in_our_schema, connection, job)
        finally:
            self._file.check()

    def _in_our_schema(self, connection: apsw.Connection, job: _Job) -> Any:
        with one_view(connection) if self._reads else nullcontext():
            refuse_another_schema(connection)
            return job.work(*job.arguments)


def _answer(job: _Job, result: object, error: BaseException | None) -> None:
    def settle() -> None:
        if job.answer.done():
            return  # cancelled meanwhile
        if error is None:
            job.answer.set_result(result)
        else:
            job.answer.set_exception(error)

    with suppress(RuntimeError):  # the caller's event loop is closed
        job.loop.call_soon_threadsafe(settle)
