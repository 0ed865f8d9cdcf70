"""How callbacks go out of one process."""

from __future__ import annotations

from collections.abc import Callable
from math import ulp
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from tenure.model.errors import InvalidOptions
from tenure.model.retry import RetryPolicy
from tenure.model.snapshot import CallbackTarget
from tenure.runtime.callback_limits import (
    LARGEST_BACKOFF,
    LONGEST_ATTEMPT,
    LONGEST_DELAY,
    LONGEST_FLUSH,
    MOST_ATTEMPTS,
)
from tenure.runtime.option_rules import (
    Rules,
    broken,
    is_flag,
    is_list_of,
    is_number,
    is_whole,
    problems_of_targets,
)
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
        """``InvalidOptions`` names everything that cannot be meant."""
        wrong = broken(_RULES, self, _RULES)
        wrong = wrong or problems_of_targets("targets", self.targets)
        if wrong:
            raise InvalidOptions(wrong)
        force_setattr(self, "targets", tuple(self.targets))

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


def _seconds(most: float, *, zero: bool = True) -> tuple[Callable[[Any], bool], str]:
    if zero:
        return is_number(0, most), f"seconds from 0 to {most:g}"
    return is_number(ulp(0.0), most), f"seconds, more than 0 and at most {most:g}"


_RULES: Rules = {
    "targets": (is_list_of(CallbackSpec, CallbackTarget), "a list of CallbackSpec"),
    "attempts": (is_whole(1, MOST_ATTEMPTS), f"a whole number from 1 to {MOST_ATTEMPTS}"),
    "delay": _seconds(LONGEST_DELAY),
    "backoff": (is_number(1, LARGEST_BACKOFF), f"a number from 1 to {LARGEST_BACKOFF:g}"),
    "max_delay": _seconds(LONGEST_DELAY),
    "timeout": _seconds(LONGEST_ATTEMPT, zero=False),
    "allow_private": (is_flag, "True or False"),
    "flush": _seconds(LONGEST_FLUSH),
}
