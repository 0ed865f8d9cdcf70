"""Whether runs are still as they were."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable


@runtime_checkable
class RunMarks(Protocol):
    """Without it, who wants to know whether something changed reads all of it."""

    async def mark_of(self, run_id: str) -> str:
        """A short word, of letters, digits and ``.-``, that is another one whenever ``get_run``
        would show something else: after an update, a claim, a renewal, the end of a lease, a
        callback given up. Costs little, however large the run. ``RunNotFound``.
        """
        ...

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        """The versions of those that are there, in one question however many they are: who follows
        journals reads only those that have grown. ``EventLog`` has the events of each by then.
        """
        ...
