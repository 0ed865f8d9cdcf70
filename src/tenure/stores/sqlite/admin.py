"""Checking, pruning, workers and tokens.

A check looks at the database on a connection of its own, without changing anything. No run waits
for it; a long one only lets the write-ahead log grow until it is over.

Old runs leave in transactions so short that writers hardly notice. First the rows go by which a run
is found, in one commit with a note in ``pruned``. What hung on them, of whatever size, follows in
portions; then its output; then the note. A prune that is stopped in between leaves the note, and
the next one goes on from there.

The database file does not shrink: what is freed is used by runs to come, so that under steady
pruning it stays as large as it once had to be. (Auto-vacuum would return the space and costs every
update.) To get space back after a large prune, stop Tenure and run ``vacuum`` on the file.
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


RUNS_AT_ONCE = 50
ROWS_AT_ONCE = 2000
"""Some 20 ms each: what a batch of updates takes."""

_PORTIONS = (
    "delete_some_deliveries",
    "delete_some_journal",
    "delete_some_steps",
    "delete_some_tasks",
)


class Retention:
    """The way of a run from found to forgotten; nothing waits for all of it but the caller."""

    def __init__(
        self,
        reader: DatabaseThread,
        reading: Callable[[], Reader],
        writer: DatabaseThread,
        pruner: Callable[[], Pruner],
    ) -> None:
        """``reading`` and ``pruner`` are asked for in their threads."""
        self._reader = reader
        self._reading = reading
        self._writer = writer
        self._pruner = pruner

    async def prune(self, older_than: float, limit: int) -> int:
        found = await self._reader.run(lambda: self._reading().prunable(older_than, limit))
        pruned = 0
        for start in range(0, len(found), RUNS_AT_ONCE):
            portion = found[start : start + RUNS_AT_ONCE]
            pruned += await self._writer.run(self._hide, portion)
        await self._clear_up()
        return pruned

    async def _clear_up(self) -> None:
        """Also after prunes that were stopped. The notes are read once: what another process hides
        meanwhile is its own to clear."""
        noted = await self._writer.run(lambda: self._pruner().noted())
        if not noted:
            return
        uncleared = noted
        while uncleared:
            uncleared = await self._writer.run(self._clear_some, uncleared)
        kept = await asyncio.to_thread(_remove_output, noted)
        removed = [one for one in noted if one.seq not in kept]
        await self._writer.run(lambda: self._pruner().forget(removed))
        for error in kept.values():
            raise StoreUnavailable(
                f"output of {len(kept)} pruned runs could not be removed: {error}. See to that, "
                "and prune again"
            ) from error

    def _hide(self, seqs: Sequence[int]) -> int:
        return self._pruner().hide(seqs)

    def _clear_some(self, noted: list[RunOutput]) -> list[RunOutput]:
        return self._pruner().clear_some(noted)


class Pruner:
    """The transactions, in the writer's thread."""

    def __init__(self, writing: Writer, files: LogFiles) -> None:
        self._writing = writing
        self._sql = writing.sql
        self._files = files

    def hide(self, seqs: Sequence[int]) -> int:
        """How many are gone: another process may have pruned some, or be sending a callback of
        theirs once more."""
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
        """Remove one portion of what hung on them; those on which something may still hang."""
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
    """What could not be removed, and why."""
    kept: dict[int, OSError] = {}
    for one in noted:
        try:
            one.remove()
        except OSError as error:
            kept[one.seq] = error
    return kept


_tokens = msgspec.json.Decoder(Token)


class Registry:
    """Workers that are there, and tokens of the gateway."""

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
