"""Time as a thing that is passed in."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol


class BootTime(NamedTuple):
    """A machine's clock that never jumps: the boot it belongs to and nanoseconds since then.

    Values of different boots cannot be compared; a lease of another boot has expired.
    """

    boot_id: str
    nanoseconds: int


class Clock(Protocol):
    """The only way the product learns what time it is. Tests and simulations pass their own."""

    def now(self) -> datetime:
        """Wall time, UTC: for people and schedules, never for ownership."""
        ...

    def boot_time(self) -> BootTime:
        """For leases among processes of one machine; counts while the machine sleeps."""
        ...
