"""Old runs leave, in transactions so short that nobody notices.

First a run is gone for everybody: the rows by which it is found, in one commit with a note in
``pruned``. What hung on them, of whatever size, follows in portions, and the workflow text if no
other run uses it; then the note. Whoever is stopped in between leaves the note, and the next to
prune goes on from there. Several may prune at once: each takes notes that nobody else works on.

A text has a run that uses it, or a note that names it. Whoever creates a run holds its text until
the commit, so what is locked here and then not seen to be used is not about to be used either. What
somebody holds is not waited for: the note stays, for the next prune.

What hangs on a run counts as well. Whoever prunes asks for a few runs a few times a second; so many
rows as these would have by rights are removed in that time, and no more: a run with a hundred
thousand rows of output takes as long as the five hundred runs it is as large as.
"""

from __future__ import annotations

import asyncio

from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.patience import pause
from tenure.stores.postgres.session import Session

RUNS_AT_ONCE = 50
ROWS_AT_ONCE = 2000
ROWS_OF_A_RUN = 200
"""Of one that is counted as one: most have a tenth of that."""
CALLS_PER_SECOND = 4
"""How often ``limit`` runs are asked for, at most (``runtime.retention``)."""

_PORTIONS = (
    "delete_some_log_chunks",
    "delete_some_deliveries",
    "delete_some_journal",
    "delete_some_steps",
    "delete_some_tasks",
)


class Pruning:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def prune(self, older_than: float, limit: int) -> int:
        pruned = 0
        while pruned < limit:
            room = min(limit - pruned, RUNS_AT_ONCE)
            async with self._connections.session(Purpose.WRITING) as session:
                found, count = await _hide(session, older_than, room)
            pruned += count
            if found < room:
                break
        await self._clear_up(max(limit, 1) * ROWS_OF_A_RUN * CALLS_PER_SECOND)
        return pruned

    async def _clear_up(self, rows_per_second: int) -> None:
        """Nobody's connection is kept during a pause; stopped in one, the note is left."""
        now = asyncio.get_running_loop().time
        at_once = min(ROWS_AT_ONCE, max(rows_per_second // CALLS_PER_SECOND, 1))
        last: int | None = 0
        while last is not None:
            began = now()
            async with self._connections.session(Purpose.WRITING) as session:
                removed, last = await _clear_some(session, last, at_once)
            if last is not None:
                await pause(max(removed / rows_per_second - (now() - began), 0.0))


async def _hide(session: Session, older_than: float, limit: int) -> tuple[int, int]:
    """How many were found, and how many are gone. What was found is held when it is looked at once
    more: a callback may have been queued again meanwhile."""
    async with session.undone_on_error():
        _, _, found = await session.together(
            ("begin",), ("carefully",), ("lock_prunable", older_than, limit)
        )
        ((count,),), _ = await session.together(
            ("hide_locked", [seq for (seq,) in found]), ("commit",)
        )
    return len(found), count


async def _clear_some(session: Session, after: int, at_once: int) -> tuple[int, int | None]:
    """One portion of what hung on pruned runs, from the first noted after this one: how many rows.
    And after which to go on: ``None``, nothing is left to do."""
    async with session.undone_on_error():
        *_, found = await session.together(
            ("begin",), ("carefully",), ("pruned", after, RUNS_AT_ONCE)
        )
        noted = [seq for (seq,) in found]
        room = at_once
        for portion in _PORTIONS:
            if noted and room > 0:
                room -= await session.count(portion, noted, room)
        forgotten = await _forget(session, noted) if noted and room > 0 else 0
        await session.all("commit")
    removed = at_once - room
    if not noted:
        return removed, None
    return removed, after if removed and forgotten < len(noted) else noted[-1]


async def _forget(session: Session, noted: list[int]) -> int:
    """Their texts, if no other run uses them, and the notes: of how many nothing is left."""
    unused = [digest for (digest,) in await session.all("lock_unused_definitions", noted)]
    if unused:
        await session.all("delete_unused_definitions", unused)
    return await session.count("forget_pruned", noted)
