"""What a retry does: set arithmetic on the hosts of each step, over all the runs before it.

A run's *past* is what the runs it retries, and those they retried, have done: the hosts that came
through each step, with what they exported, and the hosts on which a handler is still due. What is
left of a step are its hosts without those. Three rules make that exact:

* only ``success`` is done. A host that failed, could not be reached, was cut short, is unknown, or
  was never reached runs again. One that its condition skipped is asked again: it sees what it would
  have seen then, since what earlier runs exported counts from where their step ends.
* a handler that was due and did not come through is owed, until it does, whatever else is run
  again: to hosts that are through with its step first when that step's turn comes, to the others
  after they have run it.
* a step that failed although none of its hosts did (it exported less than it should) did not do its
  work anywhere.

A budget of failures is that of the step, over all its runs: a host counts as it last ended, so the
past of a step that rolls also has the hosts that failed and have not come through since.

``hosts`` and ``steps`` narrow one retry. They do not enter the past: what a retry was not asked to
do is still left for the next.
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
    """Hosts that came through it, with what they exported."""
    owed: dict[str, tuple[str, ...]] = {}
    """Handlers it notified, and the hosts on which they did not come through."""
    withheld: dict[str, tuple[str, ...]] = {}
    """What hosts exported with a secret in it: the names, for nobody keeps such values."""
    failed: dict[str, HostStatus] = {}
    """If it rolls: hosts that failed, how, and have not come through since."""
    troubled: tuple[str, ...] = ()
    """Hosts on which something of it, or of its handlers, began and did not end well, or that it
    failed as a whole; and that is not made good yet."""

    def exported(self) -> set[str]:
        """Names that those who are done exported, whether or not the values are known."""
        return {
            name
            for host, said in self.done.items()
            for name in (*said, *self.withheld.get(host, ()))
        }


NO_PAST = StepPast()


class Continuation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a retry takes from the runs before it, and what of the rest it is to do."""

    past: dict[int, StepPast] = {}
    hosts: tuple[str, ...] | None = None
    """Only these; ``None``: all that are left."""
    steps: tuple[int, ...] | None = None

    def owed(self, index: int) -> dict[str, tuple[str, ...]]:
        """Handlers this retry begins the step with."""
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
    """What is left of the plan; every step keeps its place."""
    steps = tuple(replace(step, hosts=by.left(step)) for step in plan.steps)
    return replace(plan, steps=steps)


def is_empty(plan: Plan, by: Continuation) -> bool:
    """Nothing is left to do."""
    return not any(by.left(step) or by.owed(step.index) for step in plan.steps)


def past_of(plan: Plan, run: RunSnapshot, before: Mapping[int, StepPast]) -> dict[int, StepPast]:
    """The past of whoever retries ``run``, which executed ``plan`` with the past ``before``."""
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
    """Of hosts with trouble: something is still left for them."""
    owing = {host for hosts in past.owed.values() for host in hosts}
    return tuple(sorted(host for host in troubled if host not in past.done or host in owing))


def _failed(state: StepState, before: StepPast) -> dict[str, HostStatus]:
    """One that was cut short, or not reached, is as it was before."""
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
    """Hosts on which the handler came through less often than it was due. One that was owed to a
    host is due once, whether or not the host is notified anew."""
    due = dict.fromkeys(before.owed.get(name, ()), 1)
    for host, at in state.hosts.items():
        due[host] = max(due.get(host, 0), _times_notified(at))
    for handler in handlers:
        if handler.name == name:
            for host, at in handler.hosts.items():
                due[host] = due.get(host, 0) - _handled(handler, at)
    return tuple(sorted(host for host, times in due.items() if times > 0))


def _times_notified(host: HostState) -> int:
    """As the step itself counts: once, or once for each item; not where nothing changed."""
    return sum(
        item.status is HostStatus.SUCCESS and item.changed is not False
        for item in host.items or (host,)
    )


def _handled(handler: StepState, host: HostState) -> bool:
    """It ran, or its condition kept it from running."""
    skipped = host.status is HostStatus.SKIPPED and handler.status in _WELL
    return host.status is HostStatus.SUCCESS or skipped


def _trouble_on(*steps: StepState) -> set[str]:
    """Hosts on which something began and did not end well."""
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
    """The step, and every one that waits for it, directly or not."""
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
    """The past of a retry that runs these steps again on these hosts; ``None``: on any.

    They are not done any more, and that is all: who failed has failed until it comes through, and a
    handler is owed until it does.
    """
    return {
        index: each if index not in steps else _not_done(each, hosts)
        for index, each in past.items()
    }


def _not_done(past: StepPast, hosts: Collection[str] | None) -> StepPast:
    done = {} if hosts is None else {h: said for h, said in past.done.items() if h not in hosts}
    return replace(past, done=done)
