"""Steps and hosts as rows, for stores that write only what changed.

A row for each step, host and loop item that was reached. What is pending has none: the plan says
that it exists, and how it reads after an end follows from the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from tenure.model.closing import close_hosts, close_step
from tenure.model.codec import decode
from tenure.model.deltas import StepDelta, Steps
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import ENDED_STEP, HostStatus
from tenure.stores.record_rows import Text, planned_steps

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
