"""What will go into the next update: results and starts that are ready at the same moment."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from tenure.model.snapshot import ErrorInfo, StepState
from tenure.model.status import HostStatus, StepStatus
from tenure.model.update import (
    NO_RUN_CHANGE,
    Changes,
    HostChange,
    ItemChange,
    RunChange,
    StepChange,
)
from tenure.runtime.executor import PLAIN_SUCCESS, Outcome

Item = TypeVar("Item", HostChange, ItemChange)


_SUCCEEDED = HostChange(status=HostStatus.SUCCESS)


class Draft:
    """Gathers changes. Of one step or host the later word is added to the earlier one; the engine
    never says two statuses of one thing in one draft, or the journal would miss one.

    ``changes`` gives out what was gathered, not a copy of it: then a new draft is begun.
    """

    __slots__ = ("_steps", "run")

    def __init__(self) -> None:
        self._steps: dict[int, StepChange] = {}
        """Each with a map of hosts that is ours to fill."""
        self.run = NO_RUN_CHANGE

    def __bool__(self) -> bool:
        return bool(self._steps) or self.run is not NO_RUN_CHANGE

    def step(
        self,
        index: int,
        status: StepStatus,
        message: str | None = None,
        error: ErrorInfo | UnsetType = UNSET,
    ) -> None:
        step = self._steps.get(index) or StepChange()
        said = step.message if message is None else message
        self._steps[index] = replace(step, status=status, message=said, error=error)

    def added(self, plan: StepState) -> None:
        self._steps[plan.index] = replace(self._steps.get(plan.index) or StepChange(), plan=plan)

    def host(self, index: int, host: str, change: HostChange) -> None:
        step = self._steps.get(index)
        if step is None:
            self._steps[index] = StepChange(hosts={host: change})
            return
        earlier = step.hosts.get(host)
        step.hosts[host] = change if earlier is None else _merged(earlier, change)

    def item(self, index: int, host: str, position: int, change: ItemChange) -> None:
        self.host(index, host, HostChange(items={position: change}))

    def run_changes(self, change: RunChange) -> None:
        self.run = change if self.run is NO_RUN_CHANGE else replace(self.run, **_given(change))

    def take(self, changes: Changes) -> None:
        """What was said elsewhere, as if it were said here."""
        for index, change in changes.steps.items():
            step = self._steps.get(index) or StepChange()
            both = {"hosts": step.hosts | change.hosts, "plan": change.plan or step.plan}
            self._steps[index] = replace(step, **_given(change) | both)
        if changes.run is not NO_RUN_CHANGE:
            self.run_changes(changes.run)

    def changes(self) -> Changes:
        return Changes(run=self.run, steps=self._steps)


def _merged(earlier: HostChange, later: HostChange) -> HostChange:
    items = {**earlier.items, **later.items}
    return replace(earlier, **_given(later) | {"items": items})


def _given(change: HostChange | StepChange | RunChange) -> dict[str, Any]:
    return {name: value for name, value in asdict(change).items() if value is not UNSET}


def told(kind: type[Item], outcome: Outcome) -> Item:
    """An outcome as a change of a host, or of an item of it. Only what is worth saying: defaults
    are left out of rows and journal."""
    if outcome == PLAIN_SUCCESS and kind is HostChange:
        return _SUCCEEDED  # there is nothing else to say, as of most
    given: dict[str, Any] = {"status": outcome.status}
    if outcome.message is not None or outcome.attempts != 1:  # else what an earlier one said stays
        given["message"] = outcome.message
    if outcome.exit_code is not None:
        given["exit_code"] = outcome.exit_code
    if outcome.attempts != 1:
        given["attempts"] = outcome.attempts
    if outcome.changed is not None:
        given["changed"] = outcome.changed
    if outcome.stdout is not None:
        given["stdout"] = outcome.stdout
    if outcome.stderr is not None:
        given["stderr"] = outcome.stderr
    if outcome.truncated:
        given["truncated"] = True
    if outcome.vars:
        given["vars"] = {
            name: value for name, value in outcome.vars.items() if name not in outcome.secret_vars
        }
    if outcome.secret_vars:
        given["withheld"] = tuple(sorted(outcome.secret_vars))
    if outcome.kind is not None:
        given["kind"] = outcome.kind
    return kind(**given)
