"""What the times of leases must obey to work together, and how far the settings of workers may go.

One place for all who take them: settings read from files and flags, ``Timing``, ``Pace`` and
``Worker``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

MOST_AT_ONCE = 10_000
"""Runs that one worker executes."""
MOST_CLAIMED = 1000
"""Runs that one claim takes."""
MOST_TAKEOVERS = 1_000_000


class Rule(NamedTuple):
    text: str
    why: str
    names: tuple[str, ...]
    fits: Callable[..., bool]

    def holds(self, values: Any) -> bool:
        """``values`` has an attribute for each name, in seconds."""
        return self.fits(*(getattr(values, name) for name in self.names))

    def broken_by(self, shown: Callable[[str], str]) -> str:
        """The refusal; ``shown`` tells what a name stands for."""
        facts = (f"{name} is {shown(name)}" for name in self.names)
        return f"{self.text} does not hold: {', '.join(facts)}"


RULES = (
    Rule(
        "renew_interval ≤ lease_duration / 2",
        "one renewal may be lost without losing the run",
        ("renew_interval", "lease_duration"),
        lambda renew, lease: renew <= lease / 2,
    ),
    Rule(
        "renew_interval < visibility_timeout ≤ lease_duration",
        "a broker's message stays hidden from one renewal to the next, and no longer than the "
        "lease it stands for",
        ("renew_interval", "visibility_timeout", "lease_duration"),
        lambda renew, hidden, lease: renew < hidden <= lease,
    ),
    Rule(
        "poll_interval ≤ lease_duration / 8",
        "an abandoned run is found soon after its lease ended",
        ("poll_interval", "lease_duration"),
        lambda poll, lease: poll <= lease / 8,
    ),
)


def hidden_for(lease: float, renew: float) -> float:
    """``visibility_timeout`` where nobody says it: half the lease, and longer if that is hardly
    more than a renewal. It keeps its rule whenever ``renew`` keeps the first one."""
    return min(max(lease / 2, renew * 1.5), lease)


def broken_together(values: Any) -> list[str]:
    """Of the rules that are about what ``values`` has."""
    return [
        rule.broken_by(lambda name: f"{getattr(values, name):g}s")
        for rule in RULES
        if all(hasattr(values, name) for name in rule.names) and not rule.holds(values)
    ]
