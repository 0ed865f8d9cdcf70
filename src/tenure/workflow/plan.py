"""The plan: which step runs on which hosts, and after what; and the variables each host sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tenure.model.errors import InvalidWorkflow, Mistake
from tenure.workflow.catalogue import ActionSpec
from tenure.workflow.environment import HostExports, Scope
from tenure.workflow.inventory import PlannedHost, Roster, roster_of
from tenure.workflow.spec import Handler, OnTakeover, Step, Workflow
from tenure.workflow.wording import instead_of, listed


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
    """By name, sorted; without those that ``limit`` excludes."""
    steps: tuple[PlannedStep, ...]
    handlers: dict[str, Handler]

    def on_takeover_of(self, work: Step | Handler, action: ActionSpec | None) -> OnTakeover:
        """From the step, else its probe, else the file, else the action, else rerun."""
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

    ``InvalidWorkflow`` for an unknown name. A step left without hosts stays in the plan.
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
    """For each step the indexes of those it waits for. ``InvalidWorkflow`` for an unknown name."""
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
    """A cycle of steps, the first repeated at the end; ``None`` if there is none."""
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


# The variables each host sees, in order of precedence:
#
# our own < inventory < group (alphabetical) < host < workflow < run < exported by earlier steps <
# item.
#
# An export of one host is seen by all. If the hosts of a step export different values of one name,
# each of them sees its own; the other hosts see their own earlier export (or a variable of lower
# precedence), and ``hosts['web1'].KEY`` names a value unambiguously. The last step that exported a
# name decides which of the two applies.


OWN = {"host": "the name of the host a step runs on", "hosts": "what each host exported"}
"""Variables set by Tenure. A variable of the same name in a file takes precedence, so that older
files keep their meaning."""
NO_ITEM: Any = object()


class Exports:
    """Scopes per host, cached until something new is exported.

    After a takeover, ``add`` the exports in the record again, in the order the steps ended.
    """

    def __init__(self, plan: Plan, run_vars: Mapping[str, Any] | None = None) -> None:
        self._plan = plan
        self._above_host = {**plan.workflow.vars, **(run_vars or {})}
        self._shared: dict[str, Any] = {}
        self._split: set[str] = set()
        self._hosts = HostExports()
        self._bases: dict[int, dict[str, Any]] = {}
        self._scopes: dict[str, Scope] = {}
        self._common: dict[int, Scope] = {}
        self._latest: tuple[str, Scope] | None = None
        """The last host asked for and its scope: the next step often asks for the same."""

    def add(self, exported: Mapping[str, Mapping[str, Any]]) -> str | None:
        """Add the exports of a step's hosts. Returns a note for the step, if they differ."""
        values: dict[str, dict[str, Any]] = {}
        for host, variables in exported.items():
            if variables:
                self._hosts.setdefault(host, {}).update(variables)
                for name, value in variables.items():
                    values.setdefault(name, {})[host] = value
        if not values:
            return None
        self._scopes.clear()
        self._common.clear()
        self._latest = None
        ambiguous = [name for name in values if not self._agreed(name, values[name])]
        if not ambiguous:
            return None
        host = next(iter(values[ambiguous[0]]))
        return (
            f"note: hosts have different values of {listed(ambiguous, 5)}; each sees its own, "
            f"hosts[{host!r}].{ambiguous[0]} is that of {host}"
        )

    def _agreed(self, name: str, by_host: dict[str, Any]) -> bool:
        first = next(iter(by_host.values()))
        if all(value == first for value in by_host.values()):
            self._shared[name] = first
            self._split.discard(name)
            return True
        self._shared.pop(name, None)
        self._split.add(name)
        return False

    def scope(
        self, host: str, item: Any = NO_ITEM, exported: Mapping[str, Any] | None = None
    ) -> Scope:
        """``exported`` is what the host exported in the present step."""
        if self._latest is None or self._latest[0] != host:
            self._latest = host, self._of_host(host)
        scope = self._latest[1]
        if exported:
            scope = scope.adding(exported)
        return scope if item is NO_ITEM else scope.adding({"item": item})

    def _of_host(self, host: str) -> Scope:
        scope = self._scopes.get(host)
        if scope is None:
            scope = self._scopes[host] = self._build(host)
        return scope if "host" in scope else scope.adding({"host": host})

    def _build(self, host: str) -> Scope:
        own_vars = self._plan.hosts[host].vars
        own = self._hosts.get(host)
        exported = self._shared
        if own and self._split:
            exported = exported | {name: own[name] for name in self._split if name in own}
        if exported is not self._shared:
            return Scope({**self._base(own_vars), **exported}, exported)
        # Hosts without differences share one scope.
        common = self._common.get(id(own_vars))
        if common is None:
            common = Scope({**self._base(own_vars), **exported}, exported.copy())
            self._common[id(own_vars)] = common
        return common

    def _base(self, own_vars: dict[str, Any]) -> dict[str, Any]:
        """The part that no step changes. Keyed by the mapping itself: the plan keeps it alive."""
        base = self._bases.get(id(own_vars))
        if base is None:
            base = {"hosts": self._hosts, **own_vars, **self._above_host}
            self._bases[id(own_vars)] = base
        return base
