"""The tables of every status change: who may follow whom, and what an end does to the rest.

Nothing else in Tenure decides about a status. ``apply`` reads these tables; the diagram in
``docs/reference/states.md`` and the page's lists are generated from them.
"""

from __future__ import annotations

from tenure.model.status import (
    ENDED_HOST,
    ENDED_STEP,
    TERMINAL_RUN,
    DeliveryState,
    HostStatus,
    RunStatus,
    StepStatus,
)

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
    # Both ends may be sent again by a person, under the same id.
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

# A host that was running when its run ended without anybody saying how the host ended.
# ``started_at`` tells an interrupted host that had begun from one that had not.
HOST_CUT_SHORT: dict[RunStatus, HostStatus] = {
    RunStatus.FAILED: HostStatus.UNKNOWN,
    RunStatus.CANCELED: HostStatus.UNKNOWN,
    RunStatus.INTERRUPTED: HostStatus.INTERRUPTED,
}
