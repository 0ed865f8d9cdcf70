"""Steps and hosts as rows, for stores that write only what changed.

A row for each step, host and loop item that was reached. What is pending has none: the plan says
that it exists, and how it reads after an end follows from the end. A store may keep the newest of
each, or what each version of the run wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.model.apply import NO_STEPS
from tenure.model.closing import close_hosts, close_step
from tenure.model.codec import decode
from tenure.model.deltas import StepDelta, Steps
from tenure.model.snapshot import HostState, ItemState, StepState
from tenure.model.status import ENDED_STEP, TERMINAL_RUN, HostStatus, RunStatus, StepStatus
from tenure.stores.record_rows import PlannedStep, Text, planned_step

HOST_ITSELF = -1
"""The ``item`` of a host's own row in ``tasks``."""


class StepRow(Struct, frozen=True, gc=False, array_like=True):
    index: int
    body: StepState
    """Without its hosts."""
    added_hosts: tuple[str, ...] | None
    """Which hosts it has, if the plan does not know it."""


class TaskRow(Struct, frozen=True, gc=False, array_like=True):
    step: int
    host: str
    item: int
    body: HostState
    """Of an item too: a host can say all that an item can."""


class Progress(Struct, frozen=True, gc=False, array_like=True):
    """What one version of a run changed: ``changed_rows`` as they are read."""

    steps: list[StepRow]
    tasks: list[TaskRow]


ChangedRows = tuple[
    list[tuple[int, StepState, list[str] | None]], list[tuple[int, str, int, ItemState]]
]
"""As ``StepRow`` and ``TaskRow``: index, body, added hosts; step, host, item, body."""


_names = msgspec.json.Decoder(tuple[str, ...])
_steps = msgspec.json.Decoder(StepState)
_hosts = msgspec.json.Decoder(HostState)


def step_row(index: int, body: Text, added_hosts: Text | None) -> StepRow:
    names = None if added_hosts is None else decode(_names, added_hosts)
    return StepRow(index, decode(_steps, body), names)


def host_of(body: Text) -> HostState:
    return decode(_hosts, body)


def gone_through(
    status: RunStatus,
    finished_at: datetime | None,
    plan: Sequence[PlannedStep],
    versions: Iterable[Progress],
) -> tuple[StepState, ...]:
    """As ``assembled``, of which versions changed what, in their order: the newest counts."""
    steps: dict[int, StepRow] = {}
    tasks: dict[tuple[int, str, int], TaskRow] = {}
    for progress in versions:
        for step in progress.steps:
            old = steps.get(step.index)
            if old is not None and old.added_hosts:
                step = replace(step, added_hosts=old.added_hosts)
            steps[step.index] = step
        for task in progress.tasks:
            tasks[task.step, task.host, task.item] = task
    return assembled(status, finished_at, plan, steps.values(), tasks.values())


def assembled(
    status: RunStatus,
    finished_at: datetime | None,
    plan: Sequence[PlannedStep],
    steps: Iterable[StepRow],
    tasks: Iterable[TaskRow],
) -> tuple[StepState, ...]:
    """The plan, overlaid with what has been reached, closed as far as it, or its run, has ended.

    The rows were read for this: their steps get their hosts in place. Items come in their order.
    """
    found: dict[int, StepState] = {}
    for row in steps:
        found[row.index] = row.body
        if row.added_hosts:
            row.body.hosts.update(dict.fromkeys(row.added_hosts, HostState()))
    for index, planned in enumerate(plan):
        step = found.get(index)
        if step is None:
            step = found[index] = planned_step(index, planned)
        step.hosts.update(dict.fromkeys(planned.hosts, HostState()))
    items: dict[tuple[int, str], list[ItemState]] = {}
    for task in tasks:
        if task.item == HOST_ITSELF:
            found[task.step].hosts[task.host] = task.body
        else:
            items.setdefault((task.step, task.host), []).append(_as_item(task.body))
    for (index, name), of_host in items.items():
        hosts = found[index].hosts
        hosts[name] = replace(hosts[name], items=tuple(of_host))
    in_order = (found[index] for index in sorted(found))
    if status in TERMINAL_RUN:
        return tuple(close_step(step, status, finished_at) for step in in_order)
    return tuple(close_hosts(step) if step.status in ENDED_STEP else step for step in in_order)


def _as_item(state: HostState) -> ItemState:
    return msgspec.convert(state, ItemState, from_attributes=True)


def bare(step: StepState) -> StepState:
    return replace(step, hosts={}) if step.hosts else step


def added_hosts(delta: StepDelta) -> list[str] | None:
    """Of a step that the plan does not know."""
    return list(delta.after.hosts) if delta.before is None else None


def changed_rows(deltas: Iterable[StepDelta], before: Steps = NO_STEPS) -> ChangedRows:
    """What to write; ``before``: the steps as they were."""
    steps: list[tuple[int, StepState, list[str] | None]] = []
    tasks: list[tuple[int, str, int, ItemState]] = []
    for delta in deltas:
        step = delta.after
        index = step.index
        if step is not delta.before:
            steps.append((index, bare(step), added_hosts(delta)))
        for name, host in delta.hosts.items():
            if not host.items:
                tasks.append((index, name, HOST_ITSELF, host))
                continue
            for item, value in item_rows(before, delta, name, host):
                tasks.append((index, name, item, value))
    return steps, tasks


def item_rows(
    steps: Steps, delta: StepDelta, name: str, host: HostState
) -> Iterator[tuple[int, ItemState]]:
    """The host itself, and its items that are new or differ from what ``steps`` knows."""
    yield HOST_ITSELF, replace(host, items=())
    old = None if delta.before is None else steps.host(delta.after.index, name)
    known = old.items if old is not None else ()
    for position, item in enumerate(host.items):
        if position >= len(known) or known[position] is not item:
            yield position, item


def started(steps: Iterable[StepState]) -> Iterator[StepDelta]:
    """Those that start with their run: the plan knows them, pending."""
    for step in steps:
        if step.status is not StepStatus.PENDING:
            hosts = {
                name: host
                for name, host in step.hosts.items()
                if host.status is not HostStatus.PENDING
            }
            yield StepDelta(StepState(index=step.index), step, hosts)
