"""Old runs leave, in transactions so short that writers hardly notice.

First a run is gone for everybody: the rows by which it is found, in one commit with a note in
``pruned``. What hung on them, of whatever size, follows in portions; then its output; then the
note. Whoever is stopped in between leaves the note, and the next to prune goes on from there.

The database file does not shrink: what is freed is used by runs to come, so that under steady
pruning it stays as large as it once had to be. (Auto-vacuum would return the space and costs every
update.) To get space back after a large prune, stop Tenure and run ``vacuum`` on the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tenure.model.errors import StoreUnavailable
from tenure.stores import record_rows
from tenure.stores.sqlite.log_files import LogFiles, RunOutput
from tenure.stores.sqlite.reading import Reading
from tenure.stores.sqlite.thread import DatabaseThread
from tenure.stores.sqlite.writing import Writing

RUNS_AT_ONCE = 50
ROWS_AT_ONCE = 2000
"""Some 20 ms each: what a batch of updates takes."""

_PORTIONS = (
    "delete_some_deliveries",
    "delete_some_journal",
    "delete_some_steps",
    "delete_some_tasks",
)


class Pruning:
    """The way of a run from found to forgotten; nothing waits for all of it but the caller."""

    def __init__(
        self,
        reader: DatabaseThread,
        reading: Callable[[], Reading],
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
        """Also after those who were stopped. The notes are read once: what another process hides
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

    def __init__(self, writing: Writing, files: LogFiles) -> None:
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
        for key, value in record_rows.spec_fields(summary)["labels"].items():
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
