"""When to try again: one pure decision, used for steps and for callbacks."""

from __future__ import annotations

from msgspec import Struct


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
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")
        if self.delay < 0 or self.max_delay < 0 or self.backoff < 1:
            raise ValueError("delay and max_delay must not be negative, backoff not below 1")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is a share between 0 and 1, not {self.jitter}")

    def wait_after(
        self, failed_attempts: int, *, luck: float = 0.0, at_least: float = 0.0
    ) -> float | None:
        """Seconds to wait before the next attempt, or ``None`` to give up.

        ``luck`` is a random number in [0, 1); ``at_least`` is what the other side asked for
        (``Retry-After``), itself bounded by ``max_delay``.
        """
        if failed_attempts >= self.attempts:
            return None
        try:
            # As a float: a whole number would grow digit by digit instead of overflowing.
            growth = float(self.backoff) ** (failed_attempts - 1)
            wait = min(self.delay * growth, self.max_delay)
        except OverflowError:
            wait = self.max_delay if self.delay else 0.0
        return max(wait * (1 - self.jitter * luck), min(at_least, self.max_delay))
