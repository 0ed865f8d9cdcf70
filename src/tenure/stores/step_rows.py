"""Steps and hosts as rows, for stores that write only what changed.

A row for each step, host and loop item that was reached. What is pending has none: the plan says
that it exists, and how it reads after an end follows from the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.progress import StepDelta, Steps, close_hosts, close_step
from tenure.model.snapshot import HostState, ItemState, StepState
from tenure.model.status import ENDED_STEP, TERMINAL_RUN, HostStatus, RunStatus
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


_names = msgspec.json.Decoder(tuple[str, ...])
_steps = msgspec.json.Decoder(StepState)
_hosts = msgspec.json.Decoder(HostState)


def step_row(index: int, body: Text, added_hosts: Text | None) -> StepRow:
    names = None if added_hosts is None else decode(_names, added_hosts)
    return StepRow(index, decode(_steps, body), names)


def host_of(body: Text) -> HostState:
    return decode(_hosts, body)


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


def started(step: StepState) -> StepDelta:
    """A step that starts with its run: the plan knows it, pending."""
    hosts = {
        name: host for name, host in step.hosts.items() if host.status is not HostStatus.PENDING
    }
    return StepDelta(StepState(index=step.index), step, hosts)
