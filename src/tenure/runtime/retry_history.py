"""What a retry has to do: set arithmetic on the hosts of each step, over all runs before it.

A run's *past* is what the chain of runs it retries has done: the hosts that succeeded in each step,
with their exports, and the hosts on which a handler is still due. The other hosts of a step are
left for the retry. Three rules:

* only ``success`` is done. A host that failed, was unreachable, was cut short, is unknown, or never
  started runs again. For a skipped host the condition is evaluated again: it sees the same
  variables, since exports of earlier runs count from the end of their step.
* a handler that was due and did not succeed is owed until it does, whatever else runs again: to
  hosts that are done with its step when that step starts, to the others after they have run it.
* a step that failed although none of its hosts did (it exported too little) is done nowhere.

A failure budget is that of the step over all its runs: a host counts as it last ended, so the past
of a rolling step also has the hosts that failed and have not succeeded since.

``hosts`` and ``steps`` narrow one retry and are not part of the past: what a retry leaves out is
left for the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, StepStatus
from tenure.workflow.plan import Plan, PlannedStep

_BAD = frozenset({HostStatus.FAILED, HostStatus.UNREACHABLE, HostStatus.UNKNOWN})
_CUT_SHORT = frozenset({HostStatus.CANCELED, HostStatus.INTERRUPTED})
_WELL = frozenset({StepStatus.SUCCESS, StepStatus.SKIPPED})


class StepPast(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What earlier runs did of one step."""

    done: dict[str, dict[str, Any]] = {}
    """Hosts that succeeded, with their exports."""
    owed: dict[str, tuple[str, ...]] = {}
    """Handlers it notified, with the hosts on which they did not succeed."""
    withheld: dict[str, tuple[str, ...]] = {}
    """By host, names of exports with a secret in them, whose values are not stored."""
    failed: dict[str, HostStatus] = {}
    """For a rolling step: hosts that failed and have not succeeded since."""
    troubled: tuple[str, ...] = ()
    """Hosts on which the step or one of its handlers began and did not end well, or all if it
    failed as a whole; without those that have succeeded since."""

    def exported(self) -> set[str]:
        """Names exported by the hosts that are done, whether or not the values are stored."""
        return {
            name
            for host, said in self.done.items()
            for name in (*said, *self.withheld.get(host, ()))
        }


NO_PAST = StepPast()


class Continuation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The past of a retry, and the hosts and steps it is limited to."""

    past: dict[int, StepPast] = {}
    hosts: tuple[str, ...] | None = None
    """Only these; ``None``: all."""
    steps: tuple[int, ...] | None = None

    def owed(self, index: int) -> dict[str, tuple[str, ...]]:
        """Handlers that this retry runs before the step, with their hosts."""
        if self.steps is not None and index not in self.steps:
            return {}
        owed = {
            name: tuple(filter(self._concerns, hosts))
            for name, hosts in self.past.get(index, NO_PAST).owed.items()
        }
        return {name: hosts for name, hosts in owed.items() if hosts}

    def left(self, step: PlannedStep) -> tuple[str, ...]:
        """Hosts on which this retry runs the step."""
        if self.steps is not None and step.index not in self.steps:
            return ()
        done = self.past.get(step.index, NO_PAST).done
        return tuple(host for host in step.hosts if host not in done and self._concerns(host))

    def _concerns(self, host: str) -> bool:
        return self.hosts is None or host in self.hosts


def narrowed(plan: Plan, by: Continuation) -> Plan:
    """The plan with only the hosts that are left; every step keeps its index."""
    steps = tuple(replace(step, hosts=by.left(step)) for step in plan.steps)
    return replace(plan, steps=steps)


def is_empty(plan: Plan, by: Continuation) -> bool:
    """Whether nothing is left to do."""
    return not any(by.left(step) or by.owed(step.index) for step in plan.steps)


def past_of(plan: Plan, run: RunSnapshot, before: Mapping[int, StepPast]) -> dict[int, StepPast]:
    """The past of a retry of ``run``, which executed ``plan`` with the past ``before``."""
    handlers = _handlers_by_step(run)
    past = {
        step.index: _after(
            step,
            run.steps[step.index],
            handlers.get(step.index, []),
            before.get(step.index, NO_PAST),
        )
        for step in plan.steps
    }
    return {index: each for index, each in past.items() if each != NO_PAST}


def _after(
    planned: PlannedStep, state: StepState, handlers: list[StepState], before: StepPast
) -> StepPast:
    came_through = {
        name: host.vars for name, host in state.hosts.items() if host.status is HostStatus.SUCCESS
    }
    withheld = {host: names for host, names in before.withheld.items() if host not in came_through}
    withheld |= {host: names for host in came_through if (names := state.hosts[host].withheld)}
    owed = {
        name: hosts
        for name in dict.fromkeys(planned.step.notify)
        if (hosts := _owed(name, state, handlers, before))
    }
    failed = {} if planned.step.rolling is None else _failed(state, before)
    done = {**before.done, **came_through}
    past = StepPast(done=done, owed=owed, withheld=withheld, failed=failed)
    wrong = _trouble_on(state, *handlers)
    if not wrong and state.status is StepStatus.FAILED:
        wrong = set(state.hosts)
        missing = set(planned.step.expect_vars) - past.exported()
        if missing and (came_through or handlers):
            wrong.update(done)
            past = _not_done(past, None)
    return replace(past, troubled=_not_made_good(wrong.union(before.troubled), past))


def _not_made_good(troubled: Iterable[str], past: StepPast) -> tuple[str, ...]:
    """The hosts with trouble that still have something left to do."""
    owing = {host for hosts in past.owed.values() for host in hosts}
    return tuple(sorted(host for host in troubled if host not in past.done or host in owing))


def _failed(state: StepState, before: StepPast) -> dict[str, HostStatus]:
    """Hosts whose last end was a failure; one that was cut short or not started keeps its state."""
    ended = {name: host.status for name, host in state.hosts.items()}
    failed = {name: status for name, status in ended.items() if status in _BAD}
    stays = {
        name: status
        for name, status in before.failed.items()
        if ended.get(name) is not HostStatus.SUCCESS
    }
    return stays | failed


def _owed(
    name: str, state: StepState, handlers: list[StepState], before: StepPast
) -> tuple[str, ...]:
    """Hosts on which the handler succeeded less often than it was due. An owed handler is due once,
    whether or not the host notifies it again."""
    due = dict.fromkeys(before.owed.get(name, ()), 1)
    for host, at in state.hosts.items():
        due[host] = max(due.get(host, 0), _times_notified(at))
    for handler in handlers:
        if handler.name == name:
            for host, at in handler.hosts.items():
                due[host] = due.get(host, 0) - _handled(handler, at)
    return tuple(sorted(host for host, times in due.items() if times > 0))


def _times_notified(host: HostState) -> int:
    """How often the host notified: once, or once for each item; not if nothing changed."""
    return sum(
        item.status is HostStatus.SUCCESS and item.changed is not False
        for item in host.items or (host,)
    )


def _handled(handler: StepState, host: HostState) -> bool:
    """Whether the handler ran, or was skipped by its condition."""
    skipped = host.status is HostStatus.SKIPPED and handler.status in _WELL
    return host.status is HostStatus.SUCCESS or skipped


def _trouble_on(*steps: StepState) -> set[str]:
    """Hosts on which a task began and did not end well."""
    return {name for step in steps for name, host in step.hosts.items() if _went_wrong(host)}


def _went_wrong(host: HostState) -> bool:
    begun = host.started_at is not None
    return host.status in _BAD or (host.status in _CUT_SHORT and begun)


def _handlers_by_step(run: RunSnapshot) -> dict[int, list[StepState]]:
    found: dict[int, list[StepState]] = {}
    for step in run.steps:
        if step.notified_by is not None:
            found.setdefault(step.notified_by, []).append(step)
    return found


def followers(plan: Plan, index: int) -> tuple[int, ...]:
    """The step and every step that waits for it, directly or indirectly."""
    chosen = {index}
    grown = True
    while grown:
        more = {step.index for step in plan.steps if chosen.intersection(step.needs)}
        grown = not more <= chosen
        chosen |= more
    return tuple(sorted(chosen))


def forgotten(
    past: Mapping[int, StepPast], steps: Collection[int], hosts: Collection[str] | None
) -> dict[int, StepPast]:
    """The past of a retry that runs these steps again on these hosts; ``None``: on all.

    Only ``done`` changes: a failed host has failed until it succeeds, and a handler is owed until
    it does.
    """
    return {
        index: each if index not in steps else _not_done(each, hosts)
        for index, each in past.items()
    }


def _not_done(past: StepPast, hosts: Collection[str] | None) -> StepPast:
    done = {} if hosts is None else {h: said for h, said in past.done.items() if h not in hosts}
    return replace(past, done=done)
