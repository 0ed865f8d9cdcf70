"""The histories of all runs, as one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tenure.model.events import Changes


@runtime_checkable
class ChangeFeed(Protocol):
    """Without it whoever follows many runs asks for each."""

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> Changes:
        """Events of all runs behind a cursor, or from the beginning; of ``limit`` versions at most.

        *Nothing is lost.* What can be read only later, because its commit was slower than others,
        comes behind every cursor handed out until then. Each event comes once along the cursors,
        each version whole, and those of one run in the order of their versions. Runs may be mixed
        in any way. What a run was before it was pruned may be missing.

        A feed may be late, as long as a write somewhere in the database takes. ``InvalidCursor``.
        """
        ...

    async def newest_change(self) -> str:
        """A cursor behind which comes whatever happens from now on, perhaps after a little of what
        happened before."""
        ...
