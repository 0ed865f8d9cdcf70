"""How often somebody may ask: a bucket each, that fills at a steady rate."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

_MOST = 10_000
"""Buckets that are remembered; who is forgotten was quiet for longest, and its bucket is full."""


class Rates:
    """``rate`` a second on average, ``burst`` at once; a rate of zero: any number."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Zero: one more is all right, and counted. Else seconds until it would be."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left, at = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        if left < 1:
            return (1 - left) / self._rate
        self._buckets[key] = (left - 1, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return 0.0
