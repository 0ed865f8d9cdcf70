"""Expiry by the machine's boot-time clock, for stores whose users share one machine.

The wall clock never decides, because it may be set back while a lease runs.

A lease of another boot is proof that its owner is gone: only processes of one kernel share these
stores (memory, or a database whose write-ahead log has its index in shared memory). So even a claim
that excludes expired leases takes it. A store of several machines must not draw that conclusion.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from tenure.model.update import MAX_LEASE_SECONDS, check_lease_seconds
from tenure.ports.environment import BootTime, Clock

_BILLION = 1_000_000_000


class LeaseEnd(NamedTuple):
    """When a lease ends: by the clock that decides, and by the wall clock for display."""

    boot_id: str
    nanoseconds: int
    wall: datetime


class Instant(NamedTuple):
    """One reading of both clocks, for all decisions of one transaction."""

    now: datetime
    boot: BootTime

    def until(self, seconds: float) -> LeaseEnd:
        check_lease_seconds(seconds)
        return LeaseEnd(
            self.boot.boot_id,
            self.boot.nanoseconds + round(seconds * _BILLION),
            self.now + timedelta(seconds=seconds),
        )

    def rest(self, seconds: float) -> LeaseEnd:
        """When a callback may be retried, limited to the range of a lease."""
        return self.until(min(max(seconds, 0.0), MAX_LEASE_SECONDS))

    def extended(self, end: LeaseEnd | None, seconds: float) -> LeaseEnd:
        """``seconds`` from now, or ``end`` if that is later: renewing never shortens."""
        until = self.until(seconds)
        kept = end is not None and self.is_live(end) and end.nanoseconds > until.nanoseconds
        return end if kept and end is not None else until

    def is_live(self, end: LeaseEnd | None) -> bool:
        """A lease that ends this very instant has ended."""
        return (
            end is not None
            and end.boot_id == self.boot.boot_id
            and self.boot.nanoseconds < end.nanoseconds
        )

    def rebooted_since(self, end: LeaseEnd | None) -> bool:
        """Its owner is gone for certain."""
        return end is not None and end.boot_id != self.boot.boot_id


def shown(end: LeaseEnd | None) -> datetime | None:
    return None if end is None else end.wall


class LeaseClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def read(self) -> Instant:
        return Instant(self._clock.now(), self._clock.boot_time())

    def now(self) -> datetime:
        return self._clock.now()

    def until(self, seconds: float) -> LeaseEnd:
        return self.read().until(seconds)

    def is_live(self, end: LeaseEnd | None) -> bool:
        return self.read().is_live(end)
