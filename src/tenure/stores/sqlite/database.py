"""One connection to the database file: opened safely, migrated, its errors translated."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import apsw

from tenure.model.errors import StoreError, StoreIncompatible, StoreUnavailable, UnknownStore
from tenure.stores.lock_holder import who_holds
from tenure.stores.place import absolute
from tenure.stores.sqlite.abandoned_wal import refuse_abandoned_wal
from tenure.stores.sqlite.holdup import LOCK_PATIENCE, LockWait
from tenure.stores.sqlite.not_opened import (
    refuse_what_is_no_file,
    why_not_opened,
    why_not_written,
    why_system_refused,
)

T = TypeVar("T")

APPLICATION_ID = 0x54_4E_55_52  # "TNUR", so that `file` and we ourselves can tell

_WRITE_LOCK = 120
"""The byte of the ``-shm`` file that a writer locks (walformat: WAL_WRITE_LOCK)."""

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
def translated(path: Path, lock: LockWait | None = None) -> Iterator[None]:
    """Driver errors become ours at this border, and the system's, for there are files to read."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translation(path, error, lock) from error
    except OSError as error:
        raise StoreUnavailable(why_system_refused(error, path)) from error


def translation(path: Path, error: Exception, lock: LockWait | None = None) -> StoreError:
    """What a driver's error means to whoever uses the store. ``lock`` knows how long it waited."""
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
            who_holds(path, LOCK_PATIENCE if lock is None else lock.seconds, _writers_lock(path))
        )
    if isinstance(error, apsw.CantOpenError):
        return StoreUnavailable(why_not_opened(path, error))
    if isinstance(error, apsw.ReadOnlyError):
        return StoreUnavailable(why_not_written(path, error))
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(
            f"{path}: {error}; look at the disk, its quota and the limits of file sizes"
        )
    return StoreUnavailable(f"{path}: {error}")


def _writers_lock(path: Path) -> tuple[Path, int]:
    return Path(f"{path}-shm"), _WRITE_LOCK


def usable(path: str | Path) -> Path:
    """Where links lead to: there SQLite has its own files, and whoever comes by another name finds
    ours too. ``UnknownStore`` for a name that SQLite cannot be told."""
    return _tellable(Path(os.path.realpath(_tellable(absolute(path)))))


def _tellable(path: Path) -> Path:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UnknownStore(
            f"the path {str(path)!r} is not UTF-8, and SQLite knows no other; rename it"
        ) from error
    return path


def connect(path: Path, lock: LockWait) -> apsw.Connection:
    """Open for several processes at once: WAL, and every commit on disk before it is answered.

    ``lock`` waits for whoever else holds it. Pages are read, not mapped into memory: that is as
    quick, and a disk that fails is an error instead of the end of the process.
    """
    refuse_wal_reset_bug()
    refuse_what_is_no_file(path)
    with translated(path, lock):
        refuse_abandoned_wal(path, lock)
        connection = apsw.Connection(str(path))
    try:
        with translated(path, lock):
            _set_up(connection, lock)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: apsw.Connection, lock: LockWait) -> None:
    # A plan is made once and kept. SQLite would make it anew for each value bound, in case a
    # partial index suits that very value: for our small statements several times their cost.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.set_busy_handler(_patience(lock))
    patiently(connection.pragma, ("journal_mode", "wal"), lock)
    connection.execute("pragma synchronous = full")
    connection.execute("pragma cache_size = -16000")
    connection.execute("pragma temp_store = memory")
    connection.execute("pragma mmap_size = 0")  # some systems' SQLite would


def patiently(work: Callable[..., T], arguments: tuple[object, ...], lock: LockWait) -> T:
    """``work(*arguments)``, again from its start while the file is busy.

    SQLite asks the busy handler in most cases, not in all: not where waiting might deadlock, such
    as two processes turning a new file to WAL at once. Whatever met ``BusyError`` was rolled back.
    """
    while True:
        try:
            return work(*arguments)
        except apsw.BusyError:
            if lock.in_vain:
                raise
            lock.pause(random.uniform(0.001, 0.01))  # noqa: S311


def _patience(lock: LockWait) -> Callable[[int], bool]:
    """Wait short and at random, so that many processes neither spin nor starve one another."""

    def keep_waiting(attempt: int) -> bool:
        if lock.in_vain:
            return False
        lock.pause(random.uniform(0.0002, min(0.0005 * (attempt + 1), 0.01)))  # noqa: S311
        return True

    return keep_waiting


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
    with one_view(connection):  # somebody else may be migrating at this very moment
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
    """``StoreIncompatible`` if somebody has migrated it since it was opened."""
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
