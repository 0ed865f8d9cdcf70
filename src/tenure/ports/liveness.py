"""Proof of life, and of death, beside leases."""

from __future__ import annotations

from enum import Enum
from typing import Protocol, runtime_checkable


class Presence(Enum):
    """What can be told of an owner's process by looking for it."""

    ALIVE = "alive"
    """It is there; whether it moves is another question."""
    ENDING = "ending"
    """It is gone; the supervisor of its tasks is still at work, ending them."""
    GONE = "gone"
    """And so is all that it started here."""
    UNSEEN = "unseen"
    """It may live where we cannot look: on another machine, in another container."""


@runtime_checkable
class LiveRuns(Protocol):
    """A store without leases may still know that a run's process lives (an OS lock).

    Without it, reconcile must rely on the caller's word that no other process uses the store.
    """

    async def is_live(self, run_id: str) -> bool:
        """Whether some process, this one included, holds the run. ``RunNotFound``."""
        ...
