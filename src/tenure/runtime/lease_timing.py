"""How long leases last, how often they are renewed, and how long they are trusted."""

from __future__ import annotations

from msgspec import Struct


class Timing(Struct, frozen=True, kw_only=True):
    """Seconds. Refused when it cannot work, naming the broken rule."""

    lease_duration: float = 60.0
    renew_interval: float = 20.0
    control_interval: float = 0.5
    margin: float | None = None
    """To end tasks in, before the lease can expire. ``None``: eight seconds, and of a short lease a
    quarter."""

    def __post_init__(self) -> None:
        if not 0 < self.renew_interval <= self.lease_duration / 2:
            raise ValueError(
                f"renew_interval ({self.renew_interval:g}s) must be more than zero and at most "
                f"half of lease_duration ({self.lease_duration:g}s)"
            )
        if not self.control_interval > 0:
            raise ValueError(f"control_interval ({self.control_interval:g}s) must be above zero")
        if self.margin is not None and not self.margin >= 0:
            raise ValueError(f"margin ({self.margin:g}s) must not be negative")

    @property
    def trust(self) -> float:
        """Seconds a renewal is trusted for: room for a whole renewal to be missed, at least."""
        margin = min(8.0, self.lease_duration / 4) if self.margin is None else self.margin
        return max(self.lease_duration - margin, self.renew_interval * 1.5)

    @property
    def pace(self) -> float:
        """Seconds between two looks at the store, at most."""
        return min(self.control_interval, self.renew_interval)
