"""When to try again: one pure decision, used for steps and for callbacks."""

from __future__ import annotations

from math import inf

from msgspec import Struct

from tenure.model.errors import InvalidOptions

_NUMBER = (int, float)
_BOUNDS = {
    "attempts": ((int,), 1, inf, "a whole number, at least 1"),
    "delay": (_NUMBER, 0, inf, "a finite number of seconds, not negative"),
    "backoff": (_NUMBER, 1, inf, "a finite number, not below 1"),
    "max_delay": (_NUMBER, 0, inf, "a finite number of seconds, not negative"),
    "jitter": (_NUMBER, 0, 1, "a share between 0 and 1"),
}


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """``attempts`` in all; waits grow from ``delay`` by ``backoff`` up to ``max_delay``.

    ``jitter`` is the share of each wait that randomness may take away, so that many failures
    of one moment do not come back as one.
    """

    attempts: int = 1
    delay: float = 0.0
    backoff: float = 1.0
    max_delay: float = 3600.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        """``InvalidOptions`` names every invalid field; a wait of NaN would never end."""
        wrong = [
            f"{name} must be {expected}"
            for name, (kinds, least, most, expected) in _BOUNDS.items()
            if not _fits(getattr(self, name), kinds, least, most)
        ]
        if wrong:
            raise InvalidOptions(wrong)

    def wait_after(
        self, failed_attempts: int, *, luck: float = 0.0, at_least: float = 0.0
    ) -> float | None:
        """Seconds to wait before the next attempt, or ``None`` to give up.

        ``luck`` is a random number in [0, 1); ``at_least`` is the wait the receiver asked for in
        seconds (``Retry-After``), bounded by ``max_delay``.
        """
        if failed_attempts >= self.attempts:
            return None
        try:
            # As a float: an integer would grow digit by digit instead of overflowing.
            growth = float(self.backoff) ** (failed_attempts - 1)
            wait = min(self.delay * growth, self.max_delay)
        except OverflowError:
            wait = self.max_delay if self.delay else 0.0
        return max(wait * (1 - self.jitter * luck), min(at_least, self.max_delay))


def _fits(value: object, kinds: tuple[type, ...], least: float, most: float) -> bool:
    if not isinstance(value, int | float) or not isinstance(value, kinds):
        return False
    return not isinstance(value, bool) and least <= value <= most and value != inf
