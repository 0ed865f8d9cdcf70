"""How long a relay may hold what it claims."""

from __future__ import annotations

from math import inf

from msgspec import Struct


class RelayTiming(Struct, frozen=True, kw_only=True):
    """Seconds. How long a claim lasts follows from what must fit into it."""

    send: float = 15.0
    """What the sender grants an attempt at most."""
    begin: float = 10.0
    """How long a claimed callback may wait for its turn."""
    margin: float = 2.5
    """For a sender that overruns its time, and for cutting it off before the claim ends."""
    poll: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} ({getattr(self, name):g}s) must be more than zero")

    @property
    def claim(self) -> float:
        return self.begin + self.send + 2 * self.margin

    def limits(self, sent_at: float) -> tuple[float, float]:
        """When what is claimed may begin and must end at the latest, if the claim was sent at that
        time of the loop."""
        return sent_at + self.begin, sent_at + self.claim - self.margin
