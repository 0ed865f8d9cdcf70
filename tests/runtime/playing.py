"""A run played through by hand: the pure part of the runtime against the model, nothing else.

``Play`` does what the engine does between two updates, and applies each of them to a record by the
model's own rules, so that whatever the unfolding says is also allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, UnsetType

import tenure
from tenure.model.compose import effect_of, new_run
from tenure.model.decide import apply
from tenure.model.leases import create
from tenure.model.snapshot import ErrorInfo, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import (
    Changes,
    Fencing,
    HostChange,
    LeaseRequest,
    RunChange,
    Update,
)
from tenure.ports.execution import CheckResult, Output, Task, TaskResult, Transport
from tenure.runtime.executor import Outcome
from tenure.runtime.recipe import prepare
from tenure.runtime.retry_history import Continuation
from tenure.runtime.schedule import PendingChanges, Schedule, Start
from tenure.runtime.steps import item_unwanted
from tenure.runtime.writer import not_born, with_intents
from tenure.testing.factories import delivery_ids, unique
from tenure.workflow.catalogue import ActionSpec
from tenure.workflow.plan import Exports, make_plan

AT = datetime(2030, 1, 1, tzinfo=UTC)
OK = Outcome(status=HostStatus.SUCCESS)
CHANGED = Outcome(status=HostStatus.SUCCESS, changed=True)
UNCHANGED = Outcome(status=HostStatus.SUCCESS, changed=False)
FAILED = Outcome(status=HostStatus.FAILED, message="it broke", kind="exit", exit_code=3)
UNREACHABLE = Outcome(status=HostStatus.UNREACHABLE, message="no route", kind="unreachable")
SKIPPED = Outcome(status=HostStatus.SKIPPED)
CUT_SHORT = Outcome(status=HostStatus.CANCELED, message="canceled", cut_short=True)


def exporting(**variables: Any) -> Outcome:
    return Outcome(status=HostStatus.SUCCESS, vars=variables)


class Idle:
    """An action that is never executed."""

    spec = ActionSpec(name="idle", further_arguments=True)

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        raise NotImplementedError

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        raise NotImplementedError


def step(name: str, **rest: Any) -> tenure.Step:
    return tenure.Step(name=name, action="idle", **rest)


def handler(name: str, **rest: Any) -> tenure.Handler:
    return tenure.Handler(name=name, action="idle", **rest)


def workflow(
    *steps: tenure.Step, hosts: Iterable[str] = ("a", "b"), **rest: Any
) -> tenure.Workflow:
    rest.setdefault(
        "inventory",
        tenure.Inventory(hosts={host: tenure.HostSpec(address="local") for host in hosts}),
    )
    return tenure.Workflow(name="play", steps=steps, **rest)


class StrictDraft(PendingChanges):
    """Refuses a second status of one thing: the journal would miss the first."""

    def step(
        self,
        index: int,
        status: StepStatus,
        message: str | None = None,
        error: ErrorInfo | UnsetType = UNSET,
    ) -> None:
        said = self.changes().steps.get(index)
        assert said is None or said.status is UNSET, f"step {index}: {said}, then {status}"
        super().step(index, status, message, error)

    def host(self, index: int, host: str, change: HostChange) -> None:
        said = self.changes().steps.get(index)
        before = said.hosts.get(host) if said else None
        if before is not None:
            statuses = (before.status, change.status)
            assert UNSET in statuses, f"host {host} of step {index}: {statuses}"
            twice = before.items.keys() & change.items.keys()
            assert not twice, f"host {host} of step {index}, items {twice}"
        super().host(index, host, change)


class Play:
    def __init__(
        self, played: tenure.Workflow, continues: Continuation | None = None, **variables: Any
    ) -> None:
        plan = make_plan(played)
        prepared = prepare(plan, {"idle": Idle()}, continues)
        self.exports = Exports(plan, variables)
        self.unfolding = Schedule(prepared, self.exports)
        self.running: dict[str, Start] = {}
        """What was started and has not ended, by label: ``step/host`` or ``step/host[item]``."""
        self.started: list[str] = []
        """What the newest turn started."""
        self.status: RunStatus | None = None
        self.turns: list[Changes] = []
        draft = StrictDraft()
        self.unfolding.proceed(draft)
        self.record = self._born(prepared.planned_steps, draft.changes())
        self._go_on(not_born(draft.changes()))

    def _born(self, steps: tuple[StepState, ...], changes: Changes) -> RunSnapshot:
        planned = RunSnapshot(
            run_id=unique("play"), workflow_name="play", status=RunStatus.RUNNING, steps=steps
        )
        lease = LeaseRequest(owner_id="player", seconds=60, claim_id="claim")
        born = with_intents(planned, changes)
        return create(new_run(born, unique("create"), delivery_ids(), lease=lease), AT)

    # What a test does

    def end(self, *labels: str, outcome: Outcome = OK) -> Play:
        """These end, in this order, in one turn."""
        return self.turn((label, outcome) for label in labels)

    def end_all(self, outcome: Outcome = OK) -> Play:
        return self.end(*self.running, outcome=outcome)

    def halt(self) -> Play:
        """Nothing starts any more, as after a cancel; what runs is still there."""
        self.unfolding.halt()
        return self

    def cancel(self) -> Play:
        """All the rest is cut short, and the run ends with it."""
        self.halt().end_all(CUT_SHORT)
        if self.status is None:
            draft = StrictDraft()
            self.unfolding.cut_short(RunStatus.CANCELED, CUT_SHORT, draft)
            draft.run_changes(RunChange(status=RunStatus.CANCELED))
            self.status = RunStatus.CANCELED
            self.apply(draft.changes())
        return self

    def turn(self, results: Iterable[tuple[str, Outcome]]) -> Play:
        draft = StrictDraft()
        for label, outcome in list(results):
            self.unfolding.settle(self.running.pop(label), outcome, draft)
        self._proceed(draft)
        return self

    # What it came to

    def step(self, name: str, number: int = 0) -> StepState:
        return [each for each in self.record.steps if each.name == name][number]

    def statuses(self) -> dict[str, str]:
        return {each.name: each.status.value for each in self.record.steps}

    def hosts(self, name: str, number: int = 0) -> dict[str, str]:
        return {host: each.status.value for host, each in self.step(name, number).hosts.items()}

    # How it goes on

    def _proceed(self, draft: PendingChanges) -> None:
        self.unfolding.proceed(draft)
        if self.unfolding.finished:
            self.status = self.unfolding.end(draft)
        self._go_on(draft.changes())

    def _go_on(self, changes: Changes) -> None:
        if changes != Changes():
            self.apply(changes)
        starts, self.unfolding.starts = self.unfolding.starts, []
        self.started = []
        known: dict[str, Outcome] = {}
        for start in starts:
            label = self._label(start)
            assert label not in self.running, f"{label} was started twice"
            self.started.append(label)
            self.running[label] = start
            outcome = self._known_outcome(start)
            if outcome is not None:
                known[label] = outcome
        if known:
            self.turn(known.items())
        elif self.unfolding.next_turn_due or (self.unfolding.finished and self.status is None):
            self._proceed(StrictDraft())

    def _known_outcome(self, start: Start) -> Outcome | None:
        """As the engine: what cannot be executed, or need not be."""
        progress, host, _ = start
        if host in progress.unrunnable:
            return progress.unrunnable[host]
        if progress.items is None:
            return None
        if not progress.items[host]:
            return SKIPPED
        return item_unwanted(progress.recipe, self.unfolding.scope(progress, host))

    def _label(self, start: Start) -> str:
        progress, host, position = start
        item = "" if position is None else f"[{position}]"
        label = f"{progress.recipe.name}/{host}{item}"
        same = self.running.get(label)
        if same is not None and same.progress is not progress:
            label += f"@{progress.index}"  # one handler, for two steps at once
        return label

    def apply(self, changes: Changes) -> None:
        self.turns.append(changes)
        update = Update(
            run_id=self.record.run_id,
            update_id=unique("update"),
            base_version=self.record.version,
            lease=Fencing("player", self.record.fence),
            effect=effect_of(self.record, changes, delivery_ids()),
        )
        self.record = apply(self.record, update, at=AT).snapshot
