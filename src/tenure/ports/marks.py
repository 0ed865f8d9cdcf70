"""Whether a run is still as it was."""

from __future__ import annotations

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
