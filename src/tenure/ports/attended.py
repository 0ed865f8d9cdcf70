"""Stores that somebody else looks after."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Attended(Protocol):
    """Without it whoever uses a store also sends its callbacks, marks runs whose owner is gone, and
    forgets old ones. With it nobody does any of that unless asked: a gateway does, or whatever else
    stands before the store."""

    @property
    def attended_by(self) -> str:
        """Who does, for people."""
        ...
