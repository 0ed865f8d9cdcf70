"""How many places those may take of whom nobody knows whether they answer.

A receiver is *proven* if it answered last time, *new* if nothing is known of it, *doubtful* if it
failed last time. An attempt at a silent one holds its place until its time is over, and one run can
name any number of them. So of all places

- the last fifth is for the proven: who answers is never held up by those who do not;
- the doubtful take a quarter at most: those who failed do not keep the new from being tried;
- one run has a fifth at most for those not proven: whatever it names, other runs get theirs tried;
- when half of what those not proven may take is gone, each gets one at a time.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum


class Standing(Enum):
    """Of a receiver, by how the last attempt there ended."""

    PROVEN = "proven"
    NEW = "new"
    DOUBTFUL = "doubtful"


class Shares:
    """Counts attempts under way, by their delivery's id. Every share is one place at least."""

    def __init__(self, places: int) -> None:
        self._most_unproven = max(places * 4 // 5, 1)
        self._most_doubtful = max(places // 4, 1)
        self._most_of_a_run = max(places // 5, 1)
        self._unproven: dict[str, tuple[Standing, str]] = {}
        self._doubtful = 0
        self._of_run: Counter[str] = Counter()

    def allow(self, standing: Standing, run_id: str, under_way: int) -> bool:
        """Whether one more may begin for a receiver that has so many ``under_way``."""
        if standing is Standing.PROVEN:
            return True
        if standing is Standing.DOUBTFUL and self._doubtful >= self._most_doubtful:
            return False
        most = self._most_unproven if under_way == 0 else self._most_unproven // 2
        return len(self._unproven) < most and self._of_run[run_id] < self._most_of_a_run

    def begin(self, delivery_id: str, standing: Standing, run_id: str) -> None:
        if standing is Standing.PROVEN:
            return
        self._unproven[delivery_id] = standing, run_id
        self._doubtful += standing is Standing.DOUBTFUL
        self._of_run[run_id] += 1

    def end(self, delivery_id: str) -> bool:
        """Whether that gave back a place which others who are not proven may wait for."""
        standing, run_id = self._unproven.pop(delivery_id, (Standing.PROVEN, ""))
        if standing is Standing.PROVEN:
            return False
        self._doubtful -= standing is Standing.DOUBTFUL
        self._of_run[run_id] -= 1
        if not self._of_run[run_id]:
            del self._of_run[run_id]
        return True
