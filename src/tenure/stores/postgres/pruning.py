"""Old runs leave, in transactions so short that nobody notices.

First a run is gone for everybody: the rows by which it is found, in one commit with a note in
``pruned``. What hung on them, of whatever size, follows in portions; then the note. Whoever is
stopped in between leaves the note, and the next to prune goes on from there. Several may prune at
once: each takes notes that nobody else is working on.
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
                found, count, digests = await _hide(session, older_than, room)
                if digests:
                    await _delete_unused(session, digests)
            pruned += count
            if found < room:
                break
        while await self._clear_some():
            pass
        return pruned

    async def _clear_some(self) -> bool:
        """One portion of what hung on pruned runs; whether there may be more."""
        async with (
            self._connections.session(Purpose.WRITING) as session,
            session.undone_on_error(),
        ):
            *_, found = await session.together(("begin",), ("carefully",), ("pruned", RUNS_AT_ONCE))
            noted = [seq for (seq,) in found]
            room = ROWS_AT_ONCE
            for portion in _PORTIONS:
                if noted and room > 0:
                    room -= await session.count(portion, noted, room)
            if room > 0:
                await session.all("forget_pruned", noted)
            await session.all("commit")
        return bool(noted)


async def _hide(session: Session, older_than: float, limit: int) -> tuple[int, int, list[str]]:
    """How many were found, how many are gone, and which workflow texts those used. What was found
    is held when it is looked at once more: a callback may have been queued again meanwhile."""
    async with session.undone_on_error():
        _, _, found = await session.together(
            ("begin",), ("carefully",), ("lock_prunable", older_than, limit)
        )
        ((count, digests),), _ = await session.together(
            ("hide_locked", [seq for (seq,) in found]), ("commit",)
        )
    return len(found), count, digests


async def _delete_unused(session: Session, digests: list[str]) -> None:
    """Nobody can begin to use a text between the look and the deletion: creators wait that long."""
    async with session.undone_on_error():
        await session.together(
            ("begin",),
            ("carefully",),
            ("lock_definitions",),
            ("delete_unused_definitions", digests),
            ("commit",),
        )
