"""Old runs leave, in transactions so short that nobody notices.

First a run is gone for everybody: the rows by which it is found, in one commit with a note in
``pruned``. What hung on them, of whatever size, follows in portions, and the workflow text if no
other run uses it; then the note. Whoever is stopped in between leaves the note, and the next to
prune goes on from there. Several may prune at once: each takes notes that nobody else works on.

A text has a run that uses it, or a note that names it. Whoever creates a run holds its text until
the commit, so what is locked here and then not seen to be used is not about to be used either. What
somebody holds is not waited for: the note stays, for the next prune.
"""

from __future__ import annotations

from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.session import Session

RUNS_AT_ONCE = 50
ROWS_AT_ONCE = 2000

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
        last: int | None = 0
        while last is not None:
            async with self._connections.session(Purpose.WRITING) as session:
                last = await _clear_some(session, last)
        return pruned


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


async def _clear_some(session: Session, after: int) -> int | None:
    """One portion of what hung on pruned runs, from the first noted after this one. After which to
    go on: ``None``, nothing is left to do."""
    async with session.undone_on_error():
        *_, found = await session.together(
            ("begin",), ("carefully",), ("pruned", after, RUNS_AT_ONCE)
        )
        noted = [seq for (seq,) in found]
        room = ROWS_AT_ONCE
        for portion in _PORTIONS:
            if noted and room > 0:
                room -= await session.count(portion, noted, room)
        forgotten = await _forget(session, noted) if noted and room > 0 else 0
        await session.all("commit")
    if not noted:
        return None
    removed_some = room < ROWS_AT_ONCE
    return after if removed_some and forgotten < len(noted) else noted[-1]


async def _forget(session: Session, noted: list[int]) -> int:
    """Their texts, if no other run uses them, and the notes: of how many nothing is left."""
    unused = [digest for (digest,) in await session.all("lock_unused_definitions", noted)]
    if unused:
        await session.all("delete_unused_definitions", unused)
    return await session.count("forget_pruned", noted)
