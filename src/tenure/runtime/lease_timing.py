"""How long leases last, how often they are renewed, and how long they are trusted."""

from __future__ import annotations

from msgspec import Struct

from tenure.model.errors import InvalidOptions
from tenure.runtime.lease_rules import broken_together
from tenure.runtime.option_rules import MORE_SECONDS, SECONDS, Rules, broken


class Timing(Struct, frozen=True, kw_only=True):
    """Seconds."""

    lease_duration: float = 60.0
    renew_interval: float = 20.0
    control_interval: float = 0.5
    margin: float | None = None
    """To end tasks in, before the lease can expire. ``None``: eight seconds, and of a short lease a
    quarter."""

    def __post_init__(self) -> None:
        """``InvalidOptions`` names everything that cannot work."""
        given = _RULES if self.margin is not None else _RULES.keys() - {"margin"}
        wrong = broken(_RULES, self, given) or broken_together(self)
        if wrong:
            raise InvalidOptions(wrong)

    @property
    def trust(self) -> float:
        """Seconds a renewal is trusted for: room for a whole renewal to be missed, at least."""
        margin = min(8.0, self.lease_duration / 4) if self.margin is None else self.margin
        return max(self.lease_duration - margin, self.renew_interval * 1.5)

    @property
    def pace(self) -> float:
        """Seconds between two looks at the store, at most."""
        return min(self.control_interval, self.renew_interval)


_RULES: Rules = {
    "lease_duration": MORE_SECONDS,
    "renew_interval": MORE_SECONDS,
    "control_interval": MORE_SECONDS,
    "margin": SECONDS,
}
