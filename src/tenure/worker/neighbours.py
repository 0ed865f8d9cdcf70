"""Owners whose process can be seen from here: that one of them is gone is noticed without asking
the store anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tenure.ports.liveness import Presence

_THERE = (Presence.ALIVE, Presence.ENDING)


class Neighbours:
    """``gone`` are those whose process is gone for certain, with all that it had started here."""

    def __init__(self, presence: Callable[[str], Presence]) -> None:
        self._presence = presence
        self._there: set[str] = set()
        self.gone: frozenset[str] = frozenset()

    def meet(self, owners: Iterable[str]) -> None:
        """Those that there are now. Whoever is not among them has nothing any more, and is
        forgotten."""
        seen = {owner: self._presence(owner) for owner in owners}
        self._there = {owner for owner, how in seen.items() if how in _THERE}
        self.gone = frozenset(owner for owner, how in seen.items() if how is Presence.GONE)

    def look(self) -> bool:
        """Whether one of them has gone since. (Nobody comes back: an owner is one start of a
        process.)"""
        gone = {owner for owner in self._there if self._presence(owner) is Presence.GONE}
        self._there -= gone
        self.gone |= gone
        return bool(gone)
