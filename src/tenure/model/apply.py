"""``apply``: a whole run after an update, for whoever keeps whole runs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from tenure.model.closing import close_hosts, close_step
from tenure.model.decide import decide
from tenure.model.deltas import Decision, Steps
from tenure.model.judge import CHECKS, Check, Circumstances
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import ENDED_STEP, OPEN_HOST, TERMINAL_RUN, StepStatus
from tenure.model.update import Effect, Update


class Applied(NamedTuple):
    snapshot: RunSnapshot
    version: int
    """What the writer is told; for a repetition the version of the first time."""
    effect: Effect | None
    """What to journal and to deliver; ``None`` when nothing is to be written."""


def apply(
    run: RunSnapshot,
    update: Update,
    *,
    at: datetime,
    circumstances: Circumstances = Circumstances(),
    checks: tuple[Check, ...] = CHECKS,
) -> Applied:
    """The run after ``update``, or a ``Refused`` error that leaves no trace."""
    steps = WholeSteps(run.steps)
    decision = decide(run, steps, update, at=at, circumstances=circumstances, checks=checks)
    if decision.effect is None:
        return Applied(run, decision.version, None)
    after = decision.own_fields(run)
    if decision.steps or after.ended:
        after = replace(after, steps=steps.after(after, decision))
    return Applied(after, decision.version, decision.effect)


class WholeSteps:
    """``Steps`` of a whole snapshot."""

    def __init__(self, steps: tuple[StepState, ...]) -> None:
        self._steps = {step.index: step for step in steps}
        self.step = self._steps.get

    def host(self, index: int, name: str) -> HostState | None:
        step = self._steps.get(index)
        return None if step is None else step.hosts.get(name)

    def open_hosts(self, index: int) -> dict[str, HostState]:
        step = self._steps.get(index)
        hosts = {} if step is None else step.hosts
        return {name: host for name, host in hosts.items() if host.status in OPEN_HOST}

    def unfinished(self) -> Iterable[StepState]:
        return [
            step
            for index, step in self._steps.items()
            if step.status is StepStatus.RUNNING or self.open_hosts(index)
        ]

    def after(self, run: RunSnapshot, decision: Decision) -> tuple[StepState, ...]:
        """``run``: its own fields as they read now."""
        steps = self._steps
        for index, delta in decision.steps.items():
            step = delta.after
            if delta.hosts:
                step = replace(step, hosts=step.hosts | delta.hosts)
            steps[index] = close_hosts(step) if step.status in ENDED_STEP else step
        if "status" in decision.fields and run.status in TERMINAL_RUN:
            return tuple(close_step(step, run.status, run.finished_at) for step in steps.values())
        return tuple(steps.values())


NO_STEPS: Steps = WholeSteps(())
"""For an effect that does not concern them."""
