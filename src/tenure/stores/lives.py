"""A small run from its birth in this process to its end, so that its last record need not be
read back."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.progress import StepDelta, close_step
from tenure.model.snapshot import HostState, RunSnapshot, StepState

MAX_HOSTS = 100
"""Of a run whose life is followed."""

_MOST = 50
"""Changes that are kept apart."""


class Life:
    def __init__(self, born: RunSnapshot) -> None:
        self._born = born
        self._steps = {step.index: step for step in born.steps}
        """Their own fields as they are now."""
        self._hosts = {step.index: step.hosts for step in born.steps}
        self._news: list[dict[int, StepDelta]] = []
        """What changed since then. Put together when asked for: a worker's run never is."""

    @classmethod
    def of(cls, born: RunSnapshot) -> Life | None:
        """``None`` also for a run with callbacks: others write down what becomes of those."""
        followed = not born.callbacks and born.counts.hosts_total <= MAX_HOSTS
        return cls(born) if followed else None

    def goes_on(self, changed: dict[int, StepDelta]) -> None:
        """Take in what an accepted update changed."""
        self._news.append(changed)
        if len(self._news) > _MOST:
            self._catch_up()

    def _catch_up(self) -> None:
        for changed in self._news:
            for index, delta in changed.items():
                self._steps[index] = delta.after
                planned = delta.after.hosts if delta.before is None else self._hosts[index]
                self._hosts[index] = planned | delta.hosts
        self._news.clear()

    def ends(self, run: RunSnapshot) -> RunSnapshot:
        """``run``, which has ended, with all that is not among its own fields."""
        self._catch_up()
        steps = [self._read(step, self._hosts[index], run) for index, step in self._steps.items()]
        return replace(run, vars=self._born.vars, steps=tuple(steps))

    def _read(self, step: StepState, hosts: dict[str, HostState], run: RunSnapshot) -> StepState:
        return close_step(replace(step, hosts=hosts), run.status, run.finished_at)
