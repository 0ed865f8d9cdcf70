"""The states of runs, steps, hosts and deliveries, and the tables of every transition."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeVar

E = TypeVar("E", bound=Enum)


def plain_members(kind: type[E]) -> type[E]:
    """Store the members as plain class attributes, as Python 3.12 does. Python 3.11 finds them
    through a descriptor written in Python, which makes every comparison several times dearer."""
    for member in kind:
        type.__setattr__(kind, member.name, member)
    return kind


class AnyCase(StrEnum):
    """What comes from outside may be written in any letter case; it is kept in small letters."""

    @classmethod
    def _missing_(cls, value: object) -> AnyCase | None:
        written = value.lower() if isinstance(value, str) else value
        return next((member for member in cls if member.value == written), None)


@plain_members
class RunStatus(AnyCase):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"


@plain_members
class StepStatus(AnyCase):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"


@plain_members
class HostStatus(AnyCase):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"
    UNREACHABLE = "unreachable"
    """It could not be contacted."""
    UNKNOWN = "unknown"
    """Its owner died while it ran, and how it ended could not be found out."""


@plain_members
class DeliveryState(AnyCase):
    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"


@plain_members
class StepKind(StrEnum):
    STEP = "step"
    HANDLER = "handler"


@plain_members
class Recovery(AnyCase):
    """What becomes of a run whose owner is gone."""

    INTERRUPT = "interrupt"
    """It is marked interrupted by the next reconcile."""
    RESUME = "resume"
    """The next claimer continues it."""


TERMINAL_RUN = frozenset(
    {RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.CANCELED, RunStatus.INTERRUPTED}
)
ENDED_STEP = frozenset(
    {
        StepStatus.SUCCESS,
        StepStatus.FAILED,
        StepStatus.SKIPPED,
        StepStatus.CANCELED,
        StepStatus.INTERRUPTED,
    }
)
ENDED_HOST = frozenset(
    {
        HostStatus.SUCCESS,
        HostStatus.FAILED,
        HostStatus.SKIPPED,
        HostStatus.CANCELED,
        HostStatus.INTERRUPTED,
        HostStatus.UNREACHABLE,
    }
)
"""Ends of a host. ``unknown`` is none: a rerun or a later check may still settle it."""
OPEN_HOST = frozenset({HostStatus.RUNNING, HostStatus.UNKNOWN})
"""Started and not ended."""


# Every allowed transition, and what an end does to the parts. ``decide`` reads these tables; the
# diagram in ``docs/reference/states.md`` and the page's lists are generated from them.


RUN: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset(
        {RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELED, RunStatus.INTERRUPTED}
    ),
    RunStatus.RUNNING: TERMINAL_RUN,
    **{end: frozenset() for end in TERMINAL_RUN},
}

STEP: dict[StepStatus, frozenset[StepStatus]] = {
    StepStatus.PENDING: frozenset(
        {StepStatus.RUNNING, StepStatus.SKIPPED, StepStatus.CANCELED, StepStatus.INTERRUPTED}
    ),
    StepStatus.RUNNING: ENDED_STEP,
    **{end: frozenset() for end in ENDED_STEP},
}

HOST: dict[HostStatus, frozenset[HostStatus]] = {
    HostStatus.PENDING: frozenset(
        {
            HostStatus.RUNNING,
            HostStatus.SKIPPED,
            HostStatus.CANCELED,
            HostStatus.INTERRUPTED,
            HostStatus.UNREACHABLE,
        }
    ),
    HostStatus.RUNNING: ENDED_HOST | {HostStatus.UNKNOWN},
    HostStatus.UNKNOWN: ENDED_HOST | {HostStatus.RUNNING},
    **{end: frozenset() for end in ENDED_HOST},
}

DELIVERY: dict[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.WAITING: frozenset({DeliveryState.DELIVERED, DeliveryState.DEAD}),
    # Both ends may be sent again by an operator, under the same id.
    DeliveryState.DELIVERED: frozenset({DeliveryState.WAITING}),
    DeliveryState.DEAD: frozenset({DeliveryState.WAITING}),
}

# What the end of a run does to its steps that are still open. A success with something still
# running is a contradiction and has no entry.
STEP_NOT_REACHED: dict[RunStatus, StepStatus] = {
    RunStatus.SUCCESS: StepStatus.SKIPPED,
    RunStatus.FAILED: StepStatus.SKIPPED,
    RunStatus.CANCELED: StepStatus.CANCELED,
    RunStatus.INTERRUPTED: StepStatus.INTERRUPTED,
}
STEP_CUT_SHORT: dict[RunStatus, StepStatus] = {
    RunStatus.FAILED: StepStatus.FAILED,
    RunStatus.CANCELED: StepStatus.CANCELED,
    RunStatus.INTERRUPTED: StepStatus.INTERRUPTED,
}

# What the end of a step does to its hosts that never started.
HOST_NOT_REACHED: dict[StepStatus, HostStatus] = {
    StepStatus.SUCCESS: HostStatus.SKIPPED,
    StepStatus.FAILED: HostStatus.SKIPPED,
    StepStatus.SKIPPED: HostStatus.SKIPPED,
    StepStatus.CANCELED: HostStatus.CANCELED,
    StepStatus.INTERRUPTED: HostStatus.INTERRUPTED,
}

# What the end of a host does to its loop items: first those that never started, then those that
# were running. A success or failure with an item still running is a contradiction: no entry.
ITEM_NOT_REACHED: dict[HostStatus, HostStatus] = {
    HostStatus.SUCCESS: HostStatus.SKIPPED,
    HostStatus.FAILED: HostStatus.SKIPPED,
    HostStatus.SKIPPED: HostStatus.SKIPPED,
    HostStatus.CANCELED: HostStatus.CANCELED,
    HostStatus.INTERRUPTED: HostStatus.INTERRUPTED,
    HostStatus.UNREACHABLE: HostStatus.UNREACHABLE,
}
ITEM_CUT_SHORT: dict[HostStatus, HostStatus] = {
    HostStatus.CANCELED: HostStatus.CANCELED,
    HostStatus.INTERRUPTED: HostStatus.INTERRUPTED,
    HostStatus.UNREACHABLE: HostStatus.UNREACHABLE,
    HostStatus.UNKNOWN: HostStatus.UNKNOWN,
}

# A host that was running when its run ended without a report of its own end. ``started_at`` tells
# an interrupted host that had begun from one that had not.
HOST_CUT_SHORT: dict[RunStatus, HostStatus] = {
    RunStatus.FAILED: HostStatus.UNKNOWN,
    RunStatus.CANCELED: HostStatus.UNKNOWN,
    RunStatus.INTERRUPTED: HostStatus.INTERRUPTED,
}
