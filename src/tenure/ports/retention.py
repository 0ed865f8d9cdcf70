"""Forgetting old runs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Retention(Protocol):
    """Without it history only grows, or the integrator's own tools trim it."""

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        """Remove up to ``limit`` runs that ended more than so many seconds ago, oldest first, each
        whole: record, journal, definition if nobody else uses it, settled callbacks, output. How
        many were removed.

        How long ago, the clock that stamped their ends says: the store's own, when it looks. What
        time the caller believes it is must not matter, or a wrong clock would remove everything.

        Never a run that has not ended, nor one with a callback still waiting to be sent. Writers
        wait for it no longer than for one another, however much there is to remove: the call may
        take its time over a run with very much output. Stopped meanwhile, it leaves the rest to the
        next.
        """
        ...
