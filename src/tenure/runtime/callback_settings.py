"""How callbacks go out of one process."""

from __future__ import annotations

from msgspec import Struct

from tenure.model.errors import InvalidOptions
from tenure.model.retry import RetryPolicy
from tenure.model.snapshot import CallbackTarget
from tenure.runtime.option_rules import problems_of_targets
from tenure.runtime.relay_timing import RelayTiming
from tenure.workflow.spec import CallbackSpec

_JITTER = 0.2
"""Share of a wait that chance may take away, so that what failed together does not return so."""


class CallbackSettings(Struct, frozen=True, kw_only=True):
    """Times are seconds."""

    targets: tuple[CallbackSpec | CallbackTarget, ...] = ()
    """Told of every run, before those its workflow and its options name."""
    attempts: int = 8
    """In all; then it is a dead letter."""
    delay: float = 5.0
    backoff: float = 4.0
    max_delay: float = 3600.0
    timeout: float = 15.0
    """For one attempt."""
    allow_private: bool = False
    """Whether callbacks may go to loopback, link-local and private addresses."""
    flush: float = 5.0
    """How long closing waits until each callback was tried. The rest stays in the outbox."""

    def __post_init__(self) -> None:
        if not self.timeout > 0 or not self.flush >= 0:
            raise ValueError("timeout must be more than zero, flush not negative")
        _ = self.policy
        wrong = problems_of_targets("targets", self.targets)
        if wrong:
            raise InvalidOptions(wrong)

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(
            attempts=self.attempts,
            delay=self.delay,
            backoff=self.backoff,
            max_delay=self.max_delay,
            jitter=_JITTER,
        )

    @property
    def timing(self) -> RelayTiming:
        return RelayTiming(send=self.timeout)
