"""Checking, pruning, workers and tokens.

A check reads on a connection of its own and blocks no run; the write-ahead log grows meanwhile.

Pruning works in short transactions. The rows by which a run is found are deleted first, in one
commit with a note in ``pruned``; then its other rows in portions, its output, and the note. After
an interruption the next prune resumes from the notes.

The database file does not shrink: later runs use the freed pages. (Auto-vacuum would cost every
update.) To reclaim space after a large prune, stop Tenure and run ``vacuum`` on the file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.errors import StoreUnavailable
from tenure.model.tokens import Token
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import StoreReport
from tenure.stores import rows
from tenure.stores.lease_clock import LeaseClock
from tenure.stores.sqlite.connection import (
    BUSY_TIMEOUT_S,
    DAMAGE,
    DatabaseThread,
    migrations,
    transaction,
    translated,
)
from tenure.stores.sqlite.logs import LogFiles, RunOutput
from tenure.stores.sqlite.read import Reader
from tenure.stores.sqlite.rows import Statements
from tenure.stores.sqlite.write import Writer

_MAX_FINDINGS = 10
_REPAIR = "Stop Tenure, keep a copy of the file, and restore a backup"
_RELATIONS = {
    "runs_without_spec": "runs that lack what they were given",
    "runs_without_journal": "runs whose newest change is not in the journal",
    "specs_without_definition": "runs whose workflow text is gone",
    "rows_without_run": "runs of which only parts are left",
}
"""Only possible in a file edited or repaired by hand."""


def check(path: Path, files: LogFiles) -> StoreReport:
    """``facts``, and all problems found."""
    with _opened(path) as connection:
        report = _facts(connection, path, files)
        damage = _damage(connection)
        problems = [*_schema_problems(report), *(damage or _inconsistencies(connection, files))]
    return replace(report, problems=tuple(problems))


def facts(path: Path, files: LogFiles) -> StoreReport:
    """Schema, number of runs and size, without looking for problems."""
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
            str(row[0]) for row in connection.execute(f"pragma integrity_check({_MAX_FINDINGS})")
        ]
    except DAMAGE as error:
        found = [str(error)]
    return [f"The file is damaged: {one}. {_REPAIR}." for one in found if one != "ok"]


def _inconsistencies(connection: apsw.Connection, files: LogFiles) -> Iterator[str]:
    """Problems in a file that SQLite finds sound."""
    sql = Statements(connection)
    for name, what in _RELATIONS.items():
        (count,) = sql.one(name)
        if count:
            yield f"There are {what}: {count}. {_REPAIR}."
    noted = {seq for seq, _ in sql.all("pruned")}
    if noted:
        yield (
            f"Pruned runs have left rows or output behind: {len(noted)}. Prune once more, unless "
            "a prune is at work right now."
        )
    yield from _stray_output(sql, noted, files)


def _stray_output(sql: Statements, noted: set[int], files: LogFiles) -> Iterator[str]:
    try:
        outputs = list(files.all())  # before asking the database: a run exists before its output
    except OSError as error:
        yield f"The output in {files.root} cannot be read: {error}. Check its permissions."
        return
    stray = [
        one.folder
        for one in outputs
        if one.seq not in noted and sql.first("run_exists", one.seq) is None
    ]
    stray = [folder for folder in stray if folder.exists()]  # not pruned meanwhile
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


RUNS_AT_ONCE = 50
ROWS_AT_ONCE = 2000
"""A transaction of some 20 ms, like a batch of updates."""

_PORTIONS = (
    "delete_some_deliveries",
    "delete_some_journal",
    "delete_some_steps",
    "delete_some_tasks",
)


class Retention:
    """Prunes in many small calls of the reader's and the writer's thread."""

    def __init__(
        self,
        reader: DatabaseThread,
        reading: Callable[[], Reader],
        writer: DatabaseThread,
        pruner: Callable[[], Pruner],
    ) -> None:
        """``reading`` and ``pruner`` are called in their threads."""
        self._reader = reader
        self._reading = reading
        self._writer = writer
        self._pruner = pruner

    async def prune(self, older_than: float, limit: int) -> int:
        found = await self._reader.run(lambda: self._reading().prunable(older_than, limit))
        pruned = 0
        for start in range(0, len(found), RUNS_AT_ONCE):
            portion = found[start : start + RUNS_AT_ONCE]
            pruned += await self._writer.run(lambda seqs: self._pruner().hide(seqs), portion)
        await self._clear_up()
        return pruned

    async def _clear_up(self) -> None:
        """Also after interrupted prunes. The notes are read once: another process that prunes
        meanwhile clears up its own runs."""
        noted = await self._writer.run(lambda: self._pruner().noted())
        if not noted:
            return
        uncleared = noted
        while uncleared:
            uncleared = await self._writer.run(
                lambda some: self._pruner().clear_some(some), uncleared
            )
        kept = await asyncio.to_thread(_remove_output, noted)
        removed = [one for one in noted if one.seq not in kept]
        await self._writer.run(lambda: self._pruner().forget(removed))
        for error in kept.values():
            raise StoreUnavailable(
                f"output of {len(kept)} pruned runs could not be removed: {error}. Remove the "
                "cause and prune again"
            ) from error


class Pruner:
    """The transactions of a prune, in the writer's thread."""

    def __init__(self, writing: Writer, files: LogFiles) -> None:
        self._writing = writing
        self._sql = writing.sql
        self._files = files

    def hide(self, seqs: Sequence[int]) -> int:
        """Returns the number of runs pruned; skips runs that are gone or have a callback waiting
        again."""
        with self._writing.transaction():
            return sum(self._hide(seq) for seq in seqs)

    def _hide(self, seq: int) -> bool:
        row = self._sql.first("what_to_prune", seq)
        if row is None:
            return False
        run_id, digest, summary = row
        self._sql.do("note_pruned", seq, run_id)
        self._sql.do("delete_run", seq)
        self._sql.do("delete_spec", seq)
        for key, value in rows.spec_fields(summary)["labels"].items():
            self._sql.do("delete_label", key, value, seq)
        if digest is not None:
            self._sql.do("delete_unused_definition", digest)
        self._writing.loading.recent.forget(run_id)
        return True

    def noted(self) -> list[RunOutput]:
        return [self._files.of(seq, run_id) for seq, run_id in self._sql.all("pruned")]

    def clear_some(self, noted: list[RunOutput]) -> list[RunOutput]:
        """Delete one portion of their rows. Returns the runs that may have rows left."""
        room = ROWS_AT_ONCE
        with self._writing.transaction():
            for position, one in enumerate(noted):
                for portion in _PORTIONS:
                    room -= self._sql.count(portion, one.seq, room)
                    if room == 0:
                        return noted[position:]
        return []

    def forget(self, noted: Sequence[RunOutput]) -> None:
        with self._writing.transaction():
            for one in noted:
                self._sql.do("forget_pruned", one.seq)


def _remove_output(noted: Sequence[RunOutput]) -> dict[int, OSError]:
    """The errors, by number of the run."""
    kept: dict[int, OSError] = {}
    for one in noted:
        try:
            one.remove()
        except OSError as error:
            kept[one.seq] = error
    return kept


_tokens = msgspec.json.Decoder(Token)


class Registry:
    """Live workers, and the gateway's tokens."""

    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._connection = connection
        self._sql = Statements(connection)
        self._clock = clock

    def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        with transaction(self._connection):
            instant = self._clock.read()
            until = instant.until(seconds)
            seen = rows.text(replace(worker, seen_at=instant.now))
            self._sql.do("put_worker", worker.owner_id, until.boot_id, until.nanoseconds, seen)
            self._sql.do("forget_silent_workers", *instant.boot)

    def add_token(self, token: Token) -> Token:
        with transaction(self._connection):
            new = rows.text(replace(token, created_at=self._clock.read().now))
            self._sql.do("add_token", token.id, new)
            return decode(_tokens, self._sql.one("token", token.id)[0])

    def add_first_token(self, token: Token) -> bool:
        with transaction(self._connection):
            new = rows.text(replace(token, created_at=self._clock.read().now))
            self._sql.do("add_first_token", token.id, new)
            row = self._sql.first("token", token.id)
            return row is not None and decode(_tokens, row[0]).digest == token.digest

    def revoke_token(self, token_id: str) -> Token | None:
        with transaction(self._connection):
            row = self._sql.first("token", token_id)
            if row is None:
                return None
            token = decode(_tokens, row[0])
            if token.revoked_at is None:
                token = replace(token, revoked_at=self._clock.read().now)
                self._sql.do("change_token", rows.text(token), token_id)
            return token
