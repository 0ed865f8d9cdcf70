"""Which step runs on which hosts, and after what: the workflow with every name resolved."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tenure.model.errors import InvalidWorkflow, Mistake
from tenure.workflow.catalogue import ActionSpec
from tenure.workflow.inventory import PlannedHost, Roster, roster_of
from tenure.workflow.spec import Handler, OnTakeover, Step, Workflow
from tenure.workflow.wording import instead_of


class PlannedStep(Struct, frozen=True, kw_only=True):
    index: int
    step: Step
    hosts: tuple[str, ...]
    """Sorted by name; empty if ``limit`` left none."""
    needs: tuple[int, ...]
    """Indexes of the steps to wait for."""


class Plan(Struct, frozen=True, kw_only=True):
    workflow: Workflow
    hosts: dict[str, PlannedHost]
    """By name, in the order of names; those that ``limit`` left."""
    steps: tuple[PlannedStep, ...]
    handlers: dict[str, Handler]

    def on_takeover_of(self, work: Step | Handler, action: ActionSpec | None) -> OnTakeover:
        """The step's word, else its probe, else the file's, else the action's, else rerun."""
        if isinstance(work, Step):
            if work.on_takeover is not None:
                return work.on_takeover
            if work.verify is not None:
                return OnTakeover.VERIFY
        if self.workflow.defaults.on_takeover is not None:
            return self.workflow.defaults.on_takeover
        declared = action.on_takeover if action else None
        return OnTakeover(declared) if declared else OnTakeover.RERUN


def make_plan(workflow: Workflow, *, limit: Sequence[str] = (), local: bool = False) -> Plan:
    """``limit`` names the hosts or groups to touch; ``local`` puts every host on this machine.

    ``InvalidWorkflow`` for a name that leads nowhere. A step left without hosts stays in the plan.
    """
    roster = roster_of(workflow.inventory, local=local)
    allowed = set(_chosen(roster, limit, "limit"))
    picked: dict[tuple[str, ...], tuple[str, ...]] = {}
    steps = []
    for index, (step, needs) in enumerate(zip(workflow.steps, needs_of(workflow), strict=True)):
        targets = tuple(step.targets)
        if targets not in picked:
            hosts = _chosen(roster, targets, f"steps[{index}].targets")
            picked[targets] = tuple(host for host in hosts if host in allowed)
        steps.append(PlannedStep(index=index, step=step, hosts=picked[targets], needs=needs))
    return Plan(
        workflow=workflow,
        hosts={name: host for name, host in roster.hosts.items() if name in allowed},
        steps=tuple(steps),
        handlers={handler.name: handler for handler in workflow.handlers},
    )


def _chosen(roster: Roster, names: Sequence[str], path: str) -> tuple[str, ...]:
    mistakes = [
        Mistake(
            path=path,
            message=f"no host or group named {name!r}",
            hint=instead_of(name, roster.names),
        )
        for name in names
        if not roster.knows(name)
    ]
    if mistakes:
        raise InvalidWorkflow(mistakes)
    return roster.choose(names)


def needs_of(workflow: Workflow) -> list[tuple[int, ...]]:
    """Per step the indexes of those it waits for. ``InvalidWorkflow`` for a name of no step."""
    index_of = {step.name: index for index, step in enumerate(workflow.steps)}
    needs: list[tuple[int, ...]] = []
    for index, step in enumerate(workflow.steps):
        if step.needs is None:
            needs.append((index - 1,) if index else ())
            continue
        for name in step.needs:
            if name not in index_of:
                path, hint = f"steps[{index}].needs", instead_of(name, index_of)
                message = f"no step named {name!r}"
                raise InvalidWorkflow([Mistake(path=path, message=message, hint=hint)])
        needs.append(tuple(sorted({index_of[name] for name in step.needs})))
    return needs


def find_cycle(needs: Sequence[Sequence[int]]) -> list[int] | None:
    """Steps that wait for one another, the first repeated at the end; ``None`` if none do."""
    waiting = [len(set(before)) for before in needs]
    followers: list[list[int]] = [[] for _ in needs]
    for index, before in enumerate(needs):
        for earlier in set(before):
            followers[earlier].append(index)
    free = [index for index, count in enumerate(waiting) if not count]
    while free:
        for follower in followers[free.pop()]:
            waiting[follower] -= 1
            if not waiting[follower]:
                free.append(follower)
    stuck = next((index for index, count in enumerate(waiting) if count), None)
    if stuck is None:
        return None
    path: list[int] = []
    while stuck not in path:
        path.append(stuck)
        stuck = next(earlier for earlier in needs[stuck] if waiting[earlier])
    return [*path[path.index(stuck) :], stuck]
