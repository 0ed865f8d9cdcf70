"""Pages of summaries. Every file is looked at; only those that changed are read again.

One that is damaged or may not be read is left out, with a warning: it must not keep all others from
being seen and run.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple

from tenure.model.codec import copied
from tenure.model.errors import RunNotFound, StoreError, StoreIncompatible, StoreUnavailable
from tenure.model.query import Page, RunFilter, bounded_limit, decode_cursor, encode_cursor
from tenure.model.snapshot import RunSummary, summarize
from tenure.stores.file.disk import Locked, reported
from tenure.stores.file.journal import Identity, identity_of
from tenure.stores.file.names import Names, run_of_journal, tie_break
from tenure.stores.file.records import NewerSchema
from tenure.stores.file.runs import FileRuns
from tenure.stores.file.told import Told
from tenure.stores.file.turn import Turn

MAX_REMEMBERED = 10_000


class _Row(NamedTuple):
    position: tuple[int, int]
    """(creation, tie): unique and never changing, so a page border stays where it is."""
    summary: RunSummary
    identity: Identity | None


class Choice(NamedTuple):
    """What a page is to show."""

    where: RunFilter
    limit: int
    cursor: str | None


class Listing:
    def __init__(self, names: Names, runs: FileRuns) -> None:
        self._names = names
        self._runs = runs
        self._lock = threading.Lock()
        self._rows: OrderedDict[str, _Row] = OrderedDict()
        self._left_out = Told()

    def gather(self, turn: Turn) -> Gathered:
        """All rows but those of runs that are locked just now."""
        with reported(self._names.directory), os.scandir(self._names.directory) as entries:
            named = {run_id: entry for entry in entries if (run_id := run_of_journal(entry.name))}
        gathered = Gathered(self, named)
        with suppress(Locked):
            gathered.look_at_the_rest(turn)
        return gathered

    def row(self, run_id: str, entry: os.DirEntry[str], turn: Turn) -> _Row | None:
        """``None``: there is nothing to show. ``Locked``."""
        known = self._rows.get(run_id)
        try:
            # Whether an owner lives is a fact of this moment: such runs are looked at each time.
            if known and not known.summary.owner_id and _is_unchanged(known, entry):
                self._left_out.is_over(run_id)
                return known
            look = self._runs.look(run_id, turn)
        except RunNotFound:
            return None
        except StoreIncompatible as damage:
            if isinstance(damage.__cause__, NewerSchema):
                raise
            self.leave_out(run_id, damage)
            return None
        except StoreUnavailable as failure:
            if not self._is_of_this_file(failure):
                raise
            self.leave_out(run_id, failure)
            return None
        self._left_out.is_over(run_id)
        row = _Row((look.order, tie_break(run_id)), summarize(look.run), look.identity)
        self._remember(run_id, row)
        return row

    def _is_of_this_file(self, failure: StoreUnavailable) -> bool:
        """And not of the disk, the process or the directory, in which case it is of all files."""
        cause = failure.__cause__
        if isinstance(cause, PermissionError):
            return os.access(self._names.directory, os.X_OK)
        return isinstance(cause, IsADirectoryError)

    def leave_out(self, run_id: str, why: StoreError) -> None:
        """Asked for by name it is refused."""
        self._left_out.warn(run_id, f"run {run_id} is left out of all lists: {why}")

    def _remember(self, run_id: str, row: _Row) -> None:
        with self._lock:
            self._rows.pop(run_id, None)
            self._rows[run_id] = row
            while len(self._rows) > MAX_REMEMBERED:
                self._rows.popitem(last=False)


def _is_unchanged(row: _Row, entry: os.DirEntry[str]) -> bool:
    try:
        return row.identity == identity_of(entry.stat())
    except OSError:
        return False  # a closer look tells why


class Gathered:
    """What one list has seen so far: who waits for a run that is locked keeps all others."""

    def __init__(self, listing: Listing, named: dict[str, os.DirEntry[str]]) -> None:
        self._listing = listing
        self._left = named
        self._rows: list[_Row] = []
        self._unread: dict[str, StoreUnavailable] = {}

    def look_at_the_rest(self, turn: Turn) -> None:
        """At all of them, whichever are locked. ``Locked`` if some were."""
        locked: Locked | None = None
        for run_id, entry in list(self._left.items()):
            try:
                row = self._listing.row(run_id, entry, turn)
            except Locked as found:
                locked = found
                continue
            except StoreUnavailable as failure:
                if getattr(failure.__cause__, "errno", None) != errno.EIO:
                    raise
                row, self._unread[run_id] = None, failure
            del self._left[run_id]
            if row is not None:
                self._rows.append(row)
        if locked is not None:
            raise locked

    def _leave_out_the_unread(self) -> None:
        """The disk failed there. If it did everywhere, an empty page would be a lie."""
        for run_id, failure in self._unread.items():
            if not self._rows:
                raise failure
            self._listing.leave_out(run_id, failure)

    def page(self, choice: Choice, turn: Turn) -> Page[RunSummary]:
        before = decode_cursor("runs", choice.cursor, 2) if choice.cursor else None
        limit = bounded_limit(choice.limit)
        self.look_at_the_rest(turn)
        self._leave_out_the_unread()
        found = [
            row
            for row in self._rows
            if (before is None or row.position < before) and choice.where.matches(row.summary)
        ]
        found.sort(key=lambda row: row.position, reverse=True)
        page = found[:limit]
        return Page(
            items=tuple(copied(row.summary) for row in page),
            cursor=encode_cursor("runs", *page[-1].position) if len(found) > limit else None,
        )
