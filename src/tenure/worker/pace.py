"""How much a worker takes on, and how often it looks."""

from __future__ import annotations

from msgspec import Struct

from tenure.model.errors import InvalidOptions
from tenure.runtime.lease_rules import MOST_AT_ONCE, MOST_CLAIMED
from tenure.runtime.option_rules import MORE_SECONDS, SECONDS, Rules, broken, whole


class Pace(Struct, frozen=True, kw_only=True):
    """``concurrency`` is how many runs at once; the rest is seconds."""

    concurrency: int = 20
    claim_batch: int = 10
    """Runs that one claim takes, at most."""
    poll_interval: float = 1.0
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        """``InvalidOptions`` names everything that cannot work."""
        wrong = broken(_RULES, self, _RULES)
        if wrong:
            raise InvalidOptions(wrong)


_RULES: Rules = {
    "concurrency": whole(1, MOST_AT_ONCE),
    "claim_batch": whole(1, MOST_CLAIMED),
    "poll_interval": MORE_SECONDS,
    "drain_timeout": SECONDS,
}
