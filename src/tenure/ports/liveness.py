"""Proof of life for stores that have no leases."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class LiveRuns(Protocol):
    """A store without leases may still know that a run's process lives (an OS lock).

    Without it, reconcile must rely on the caller's word that no other process uses the store.
    """

    async def is_live(self, run_id: str) -> bool:
        """Whether some process, this one included, holds the run. ``RunNotFound``."""
        ...
