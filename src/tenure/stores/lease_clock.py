"""Expiry by the machine's boot-time clock, for stores whose users share one machine.

The wall clock never decides: it may be set back while a lease runs. A lease written before the
machine last booted has expired, for its owner cannot have survived that.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tenure.ports.clock import BootTime, Clock

_BILLION = 1_000_000_000


class LeaseClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return self._clock.now()

    def boot_time(self) -> BootTime:
        return self._clock.boot_time()

    def until(self, seconds: float) -> BootTime:
        now = self._clock.boot_time()
        return BootTime(now.boot_id, now.nanoseconds + round(seconds * _BILLION))

    def is_live(self, until: BootTime | None) -> bool:
        """A lease that ends this very instant has ended."""
        if until is None:
            return False
        now = self._clock.boot_time()
        return until.boot_id == now.boot_id and now.nanoseconds < until.nanoseconds

    def as_wall(self, until: BootTime | None) -> datetime | None:
        """For people. Of another boot nobody can say more than that it is over."""
        if until is None:
            return None
        now = self._clock.boot_time()
        if until.boot_id != now.boot_id:
            return self._clock.now()
        return self._clock.now() + timedelta(
            microseconds=(until.nanoseconds - now.nanoseconds) // 1000
        )
