"""Steps and hosts as rows, for stores that write only what changed.

A row for each step, host and loop item that was reached. What is pending has none: the plan says
that it exists, and how it reads after an end follows from the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tenure.model.closing import close_hosts, close_step
from tenure.model.codec import decode
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import ENDED_STEP, HostStatus
from tenure.model.update import Effect
from tenure.stores.record_rows import Text, planned_steps, text

HOST_ITSELF = -1
"""The ``item`` of a host's own row in ``tasks``."""

_names = msgspec.json.Decoder(tuple[str, ...])
_steps = msgspec.json.Decoder(StepState)
_hosts = msgspec.json.Decoder(HostState)
_items = msgspec.json.Decoder(ItemState)

StepRow = tuple[int, Text, Text | None]
"""Index, the step without its hosts, and which hosts it has if the plan does not know it."""
TaskRow = tuple[int, str, int, Text]
"""Step, host, item, body."""


def host_of(body: Text) -> HostState:
    return decode(_hosts, body)


def assembled(
    run: RunSnapshot, plan: Text, steps: Iterable[StepRow], tasks: Iterable[TaskRow]
) -> tuple[StepState, ...]:
    """The plan, overlaid with what has been reached, closed as far as it has ended.

    ``tasks`` come ordered by step, host, item.
    """
    found = planned_steps(plan)
    for index, body, added in steps:
        reached = decode(_steps, body)
        planned = found.get(index)
        if planned is None:
            names = decode(_names, added or "[]")
            found[index] = replace(reached, hosts={name: HostState() for name in names})
        else:
            found[index] = replace(
                planned,
                status=reached.status,
                message=reached.message,
                started_at=reached.started_at,
                finished_at=reached.finished_at,
            )
    for index, name, host in _hosts_with_items(tasks):
        found[index].hosts[name] = host
    return tuple(_closed(run, found[index]) for index in sorted(found))


def _hosts_with_items(tasks: Iterable[TaskRow]) -> Iterator[tuple[int, str, HostState]]:
    """A host's own row comes before its items."""
    host: HostState | None = None
    items: list[ItemState] = []
    place = (-1, "")
    for index, name, item, body in tasks:
        if item != HOST_ITSELF:
            items.append(decode(_items, body))
            continue
        if host is not None:
            yield *place, _with_items(host, items)
        host, items, place = host_of(body), [], (index, name)
    if host is not None:
        yield *place, _with_items(host, items)


def _with_items(host: HostState, items: list[ItemState]) -> HostState:
    return replace(host, items=tuple(items)) if items else host


def _closed(run: RunSnapshot, step: StepState) -> StepState:
    if run.ended:
        return close_step(step, run.status, run.finished_at)
    return close_hosts(step) if step.status in ENDED_STEP else step


class ChangedStep(NamedTuple):
    """What is to be written of one step."""

    bare: StepState
    """Without its hosts, as its row reads then."""
    row: StepRow | None
    tasks: list[TaskRow]


def changed_steps(before: RunSnapshot, after: RunSnapshot, effect: Effect) -> Iterator[ChangedStep]:
    if before.steps is after.steps:
        return
    old = {step.index: step for step in before.steps}
    for step in after.steps:
        known = old.get(step.index)
        if known is not step:
            yield changed_step(step, known, effect)


def changed_step(
    step: StepState, known: StepState | None, effect: Effect | None = None
) -> ChangedStep:
    """``known``: as it was. A step that was nowhere before is one that starts with its run or, if
    an ``effect`` added it, one that the plan does not know: its hosts are listed, and have rows
    once they start."""
    bare, hosts = replace(step, hosts={}), step.hosts
    added, row = None, None
    if known is None and effect is not None:
        added = text(list(hosts))
        hosts = {name: hosts[name] for name in effect.changes.steps[step.index].hosts}
    if known is None or not _same_but_hosts(step, known):
        row = (step.index, text(bare), added)
    tasks: list[TaskRow] = []
    for name, host in hosts.items():
        old = known.hosts.get(name) if known else None
        if host is not old and not (old is None and host.status is HostStatus.PENDING):
            alone = replace(host, items=()) if host.items else host
            tasks.append((step.index, name, HOST_ITSELF, text(alone)))
            if host.items:
                tasks += _changed_items(step.index, name, host, old.items if old else ())
    return ChangedStep(bare, row, tasks)


def _changed_items(
    step: int, name: str, host: HostState, known: tuple[ItemState, ...]
) -> Iterator[TaskRow]:
    for position, item in enumerate(host.items):
        if position >= len(known) or known[position] is not item:
            yield step, name, position, text(item)


def _same_but_hosts(step: StepState, other: StepState) -> bool:
    return (
        step.status is other.status
        and step.message == other.message
        and step.started_at == other.started_at
        and step.finished_at == other.finished_at
    )
