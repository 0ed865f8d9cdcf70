"""Is the database sound? Looked at on a connection of its own, without changing anything.

No run waits for a check. A long one only lets the write-ahead log grow until it is over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
from msgspec.structs import replace

from tenure.ports.store import StoreReport
from tenure.stores.sqlite.database import BUSY_TIMEOUT_S, DAMAGE, migrations, translated
from tenure.stores.sqlite.log_files import LogFiles
from tenure.stores.sqlite.statements import Statements

_MOST_FINDINGS = 10
_REPAIR = "Stop Tenure, keep a copy of the file, and restore a backup"
_RELATIONS = {
    "runs_without_spec": "runs that lack what they were given",
    "runs_without_journal": "runs whose newest change is not in the journal",
    "specs_without_definition": "runs whose workflow text is gone",
    "rows_without_run": "runs of which only parts are left",
}
"""Nothing Tenure does leads to these; a file edited or repaired by hand may show them."""


def check(path: Path, files: LogFiles) -> StoreReport:
    """Everything in ``facts``, and what is wrong."""
    with _opened(path) as connection:
        report = _facts(connection, path, files)
        damage = _damage(connection)
        problems = [*_schema_problems(report), *(damage or _disorder(connection, files))]
    return replace(report, problems=tuple(problems))


def facts(path: Path, files: LogFiles) -> StoreReport:
    """What can be said at once, without looking for damage."""
    with _opened(path) as connection:
        return _facts(connection, path, files)


@contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection]:
    with (
        translated(path),
        closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection,
    ):
        connection.set_busy_timeout(round(BUSY_TIMEOUT_S * 1000))
        yield connection


def _facts(connection: apsw.Connection, path: Path, files: LogFiles) -> StoreReport:
    runs = None
    with suppress(*DAMAGE):
        (runs,) = Statements(connection).one("count_runs")
    return StoreReport(
        place=str(path),
        schema=int(connection.pragma("user_version")),
        newest_schema=migrations()[-1][0],
        runs=runs,
        bytes_used=_size(path) + _size(Path(f"{path}-wal")) + _size_below(files.root),
    )


def _schema_problems(report: StoreReport) -> Iterator[str]:
    if report.schema > report.newest_schema:
        yield (
            f"The schema is {report.schema}, this version of Tenure knows up to "
            f"{report.newest_schema}: upgrade Tenure on this machine."
        )
    elif report.schema < report.newest_schema:
        yield f"The schema is {report.schema}, not {report.newest_schema}: migrate the store."


def _damage(connection: apsw.Connection) -> list[str]:
    try:
        found = [
            str(row[0]) for row in connection.execute(f"pragma integrity_check({_MOST_FINDINGS})")
        ]
    except DAMAGE as error:
        found = [str(error)]
    return [f"The file is damaged: {one}. {_REPAIR}." for one in found if one != "ok"]


def _disorder(connection: apsw.Connection, files: LogFiles) -> Iterator[str]:
    """What can be wrong in a file that SQLite finds sound."""
    sql = Statements(connection)
    noted = {seq for seq, _ in sql.all("pruned")}
    yield from _broken_relations(sql)
    yield from _unfinished_prunes(noted)
    yield from _stray_output(sql, noted, files)


def _broken_relations(sql: Statements) -> Iterator[str]:
    """SQLite is not asked to watch these with every write; the transactions keep them."""
    for name, what in _RELATIONS.items():
        (count,) = sql.one(name)
        if count:
            yield f"There are {what}: {count}. {_REPAIR}."


def _unfinished_prunes(noted: set[int]) -> Iterator[str]:
    if noted:
        yield (
            f"Pruned runs have left rows or output behind: {len(noted)}. Prune once more, unless "
            "a prune is at work right now."
        )


def _stray_output(sql: Statements, noted: set[int], files: LogFiles) -> Iterator[str]:
    """The folders are listed before the database is asked: a run is there before its output."""
    try:
        there = list(files.all())
    except OSError as error:
        yield f"The output in {files.root} cannot be read: {error}. See to its permissions."
        return
    stray = [
        one.folder
        for one in there
        if one.seq not in noted and sql.first("run_is_there", one.seq) is None
    ]
    stray = [folder for folder in stray if folder.exists()]  # not pruned a moment ago
    if stray:
        yield (
            f"There is output of runs that are not in the database, in {len(stray)} folders such "
            f"as {min(stray)}: delete them, or restore the database they belong to."
        )


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _size_below(root: Path) -> int:
    return sum(_size(Path(folder, name)) for folder, _, names in os.walk(root) for name in names)
