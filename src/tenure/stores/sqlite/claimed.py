"""What this process has claimed and not settled yet, as it then stood.

Settling would read it back only to find it unchanged: while a row carries the token of a claim,
nobody but its holder changes it. Whoever writes by this memory checks the token in that very
statement, and reads again if some row no longer carries it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.model.outbox import Settlement
from tenure.stores.sqlite.delivery_rows import Kept

_MOST = 2000


class Claimed:
    """Bounded; what was claimed first is forgotten first."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def remember(self, claimed: Iterable[Kept]) -> None:
        for kept in claimed:
            self._kept[kept.delivery.id] = kept
        while len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]

    def take(self, settlements: Iterable[Settlement]) -> dict[str, Kept]:
        """By id, what is remembered of them. Nothing is handed out twice."""
        taken: dict[str, Kept] = {}
        for settlement in settlements:
            kept = self._kept.pop(settlement.delivery_id, None)
            if kept is not None and kept.delivery.token == settlement.token:
                taken[settlement.delivery_id] = kept
        return taken
