"""The states of runs, steps, hosts and deliveries. Who may move where: ``transitions``."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeVar

E = TypeVar("E", bound=Enum)


def plain_members(kind: type[E]) -> type[E]:
    """Python 3.11 finds a member through a descriptor written in Python; 3.12 stores the member
    itself. Doing so here makes every comparison with a status several times cheaper."""
    for member in kind:
        type.__setattr__(kind, member.name, member)
    return kind


@plain_members
class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"


@plain_members
class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"


@plain_members
class HostStatus(StrEnum):
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
    """Its owner died while it ran and nobody could find out how it ended."""


@plain_members
class DeliveryState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"


@plain_members
class StepKind(StrEnum):
    STEP = "step"
    HANDLER = "handler"


@plain_members
class Recovery(StrEnum):
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
"""Ends of a host. ``unknown`` is none: a rerun or a late finding may still settle it."""
OPEN_HOST = frozenset({HostStatus.RUNNING, HostStatus.UNKNOWN})
"""Started, and not ended."""
