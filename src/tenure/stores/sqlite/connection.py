"""A connection to the database file, and the thread that uses it.

Opened safely for several processes, migrated, its errors translated. A call is one hop into the
thread and one transaction there: hopping for every statement would cost several times as much.
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

APPLICATION_ID = 0x54_4E_55_52  # "TNUR", so that `file` and we ourselves can tell

BUSY_TIMEOUT_S = 60.0
"""How long another process's transaction is waited for."""
_WARN_AFTER_S = 2.0
"""Shorter waits are part of sharing a file."""
_LEAST_S = 0.1
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
"""What is wrong with a value, told apart from what is wrong with the database."""
DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError)
"""What a sound database never answers."""
DRIVER_ERRORS = (apsw.Error, UnicodeEncodeError, UnicodeDecodeError, OverflowError)


def library_version() -> str:
    return apsw.sqlite_lib_version()


def refuse_wal_reset_bug(version: str = apsw.sqlite_lib_version()) -> None:
    """SQLite before 3.51.3 can corrupt a WAL database when two connections write and checkpoint
    at the same moment. Exactly what we do, so: not with us."""
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
    """Driver errors become ours at this border, and the system's, for there are files to read."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translation(path, error) from error
    except OSError as error:
        raise StoreUnavailable(
            f"cannot open {error.filename or path}: {error.strerror or error}. {_CHECK}"
        ) from error


def translation(path: Path, error: Exception) -> StoreError:
    """What a driver's error means to a user of the store."""
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
        return StoreUnavailable(f"cannot open {path}: {_hindrance(path, error)}")
    if isinstance(error, apsw.ReadOnlyError):
        return StoreUnavailable(f"cannot write {path}: {_hindrance(path, error)}")
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(
            f"{path}: {error}; look at the disk, its quota and the limits of file sizes"
        )
    return StoreUnavailable(f"{path}: {error}")


def _hindrance(path: Path, error: Exception) -> str:
    """SQLite does not tell. Looked for without opening a file: closing it again would take this
    process's locks away from its other connections."""
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
    """The file under its name. One that is removed, moved away or replaced while it is open goes on
    being read and written, by this process alone, and is gone when the process ends."""

    def __init__(self, path: str | Path) -> None:
        """Where links lead to: there SQLite has its own files. ``UnknownStore`` for a name that
        SQLite cannot be told."""
        self.path = _tellable(Path(os.path.realpath(_tellable(absolute(path)))))
        self._identity: tuple[int, int] | None = None

    @property
    def is_known(self) -> bool:
        return self._identity is not None

    def check(self) -> None:
        """``StoreLost`` if it is not the one of the first call."""
        found = None
        try:
            seen = os.stat(self.path)
            found = seen.st_dev, seen.st_ino
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:  # a look that fails proves nothing
            return
        if self._identity is None:
            self._identity = found
        elif found != self._identity:
            what = "removed or moved away" if found is None else "replaced by another file"
            raise StoreLost(
                f"{self.path} was {what} while this process had it open: what it wrote since then "
                "is lost. Put the file back and start again; no run may be going on when it is "
                "moved"
            )

    def refuse_other_kinds(self) -> None:
        """SQLite would open some of them, and fail later with an error that tells nothing."""
        if self.path.is_dir():
            raise StoreUnavailable(
                f"cannot open {self.path}: it is a folder, and a SQLite store is a file. Name one "
                f"in it, such as {self.path / 'runs.db'}"
            )
        if self.path.exists() and not self.path.is_file():
            raise StoreUnavailable(f"cannot open {self.path}: it is no regular file. {_CHECK}")


def _tellable(path: Path) -> Path:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UnknownStore(
            f"the path {str(path)!r} is not UTF-8, and SQLite knows no other; rename it"
        ) from error
    return path


class BusyWait:
    """How long a connection waits while another process has the file locked."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._warn_at = self._give_up_at = 0.0
        self._unwanted: Callable[[], bool] = lambda: False

    def begin(self, asked_at: float, unwanted: Callable[[], bool] = lambda: False) -> None:
        """The time counts from when the caller asked: calls that waited behind one another give up
        together. ``unwanted``: the caller has gone."""
        now = monotonic()
        self._warn_at = now + _WARN_AFTER_S
        self._give_up_at = max(asked_at + self._timeout_s, now + min(self._timeout_s, _LEAST_S))
        self._unwanted = unwanted

    def again(self, attempt: int) -> bool:
        """SQLite's busy handler. Short waits of random length, so that many processes neither spin
        nor starve one another."""
        now = monotonic()
        if now > self._give_up_at or self._unwanted():
            return False
        if now > self._warn_at:
            self._warn_at = inf
            _log.warning("another process has locked %s; waiting for it", self._path)
        _pause(random.uniform(0.0002, min(0.0005 * (attempt + 1), 0.01)))  # noqa: S311
        return True

    def retried(self, work: Callable[..., T], *arguments: object) -> T:
        """SQLite asks its busy handler in most cases, not where waiting might deadlock, such as two
        processes turning a new file to WAL. Work that met ``BusyError`` was rolled back."""
        for attempt in count():
            try:
                return work(*arguments)
            except apsw.BusyError:
                if not self.again(attempt):
                    raise
        raise AssertionError


def connect(file: DatabaseFile, busy: BusyWait) -> apsw.Connection:
    """Open for several processes at once: WAL, and every commit on disk before it is answered.
    Created or migrated if need be.

    Pages are read, not mapped into memory: that is as quick, and a disk that fails is an error
    instead of the end of the process.
    """
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
    # A plan is made once and kept. SQLite would make it anew for each value bound, in case a
    # partial index suits that very value: for our small statements several times their cost.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.set_busy_handler(busy.again)
    busy.retried(connection.pragma, "journal_mode", "wal")
    connection.execute("pragma synchronous = full")
    connection.execute("pragma cache_size = -16000")
    connection.execute("pragma temp_store = memory")
    connection.execute("pragma mmap_size = 0")  # some systems' SQLite would


def migrations() -> list[tuple[int, str]]:
    folder = files("tenure.stores.sqlite") / "migrations"
    found = [entry for entry in folder.iterdir() if re.match(r"\d{4}_.*\.sql$", entry.name)]
    return sorted((int(entry.name[:4]), entry.read_text(encoding="utf-8")) for entry in found)


@cache
def newest_schema() -> int:
    return migrations()[-1][0]


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the schema to this version's, under the write lock; never touch a newer one."""
    newest = newest_schema()
    with one_view(connection):  # another process may be migrating right now
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


def check_schema(connection: apsw.Connection, path: Path) -> None:
    """``StoreIncompatible`` if it was migrated since it was opened."""
    present, newest = _schema_of(connection, path), newest_schema()
    if present != newest:
        raise StoreIncompatible(_another_schema(path, present, newest))


def refuse_another_schema(connection: apsw.Connection) -> None:
    """As ``check_schema``, quick enough to be asked in every transaction: one look at a page that
    SQLite has read anyway. A newer Tenure may keep rules that this one would break."""
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
    """All or nothing, in a database as this version of Tenure knows it."""
    with _all_or_nothing(connection):
        refuse_another_schema(connection)
        yield


@contextmanager
def _all_or_nothing(connection: apsw.Connection) -> Iterator[None]:
    """Takes the write lock at once, so that no reader turns writer too late."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        # SQLite has already rolled back by itself after a full disk or an I/O error.
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
    """Several reads of one moment, while others write."""
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
    """Runs functions one after another, in the order they were asked for. Thread and connection
    come with the first of them."""

    def __init__(
        self, file: DatabaseFile, name: str, busy_timeout_s: float, *, reads: bool = False
    ) -> None:
        """``reads``: each function only reads, and all it reads is of one moment."""
        self._file = file
        self._reads = reads
        self._busy = BusyWait(file.path, busy_timeout_s)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = threading.Event()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=f"tenure-{name}", daemon=True)

    @cached_property
    def connection(self) -> apsw.Connection:
        """For what works in this thread."""
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
        """Finish what was asked for, then let go of the file. May be called twice."""
        with self._guard:
            if not self._closing.is_set():
                self._closing.set()
                self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        if "connection" in self.__dict__:
            self.connection.close()

    # In the thread

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
        """No answer is given from a file that other processes do not see, nor a refusal."""
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
