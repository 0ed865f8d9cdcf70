"""Pages of runs by keyset: each page costs the same, however long the history.

The conditions differ from call to call, so these statements are put together; from fixed
fragments only, with every value bound. A workflow, a queue or a status set is asked for one status
at a time, each from its own ordered index range, and the few rows of each range are merged with
those that match among the runs with an owner, which are in none of these ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tenure.model.query import RunFilter
from tenure.model.status import TERMINAL_RUN, RunStatus
from tenure.stores.postgres.index_ranges import newest_of
from tenure.stores.postgres.statements import FRAGMENTS

_DISORDER = "interval '1 hour'"
"""Runs are numbered as they come, by the second or two that a commit may take out of the order of
their creation times. So long a time says where to look; the exact condition is checked besides."""
_HELD = "select * from tenure.runs o where o.owner_id is not null offset 0"
_LAST_SEQ = (1 << 63) - 1


class Values:
    """Bound values, by the places at which a statement names them."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def bind(self, value: Any) -> str:
        self.all.append(value)
        return f"${len(self.all)}"


def newest(where: RunFilter, before: int, limit: int) -> tuple[str, list[Any]]:
    """(seq, summary) of matching runs below ``before``, newest first."""
    values = Values()
    border = values.bind(before)
    seqs = _ordered(where, border, values, values.bind(limit))
    statement = (
        f"select u.seq, json_build_array({FRAGMENTS['head']}, s.summary)::text from ({seqs}) u, "
        "lateral (select * from tenure.runs where seq = u.seq limit 1) r, "
        "lateral (select * from tenure.run_specs where seq = u.seq limit 1) s "
        "order by u.seq desc"
    )
    return statement, values.all


def conditions_of(where: RunFilter, values: Values) -> Iterator[str]:
    """All but status and workflow."""
    if where.queue is not None:
        # No condition for an index: whoever wants that one names it by a range. And nothing that
        # the planner would take for rare: reading all, to sort the few, would then look cheap.
        yield f"coalesce(r.queue = {values.bind(where.queue)}, false)"
    if where.owner_id is not None:
        yield f"r.owner_id = {values.bind(where.owner_id)}"
    if where.held or where.canceling:
        yield "r.owner_id is not null"
    if where.canceling:
        yield "r.cancel_requested_at is not null"
    if where.unapproved:
        yield "r.readiness = 3"
    if where.created_from is not None:
        yield f"r.created_at >= {values.bind(where.created_from)}::timestamptz"
    if where.created_to is not None:
        yield f"r.created_at < {values.bind(where.created_to)}::timestamptz"
    for key, value in where.labels.items():
        # As a value, not `exists`: the planner would make that a join, and might begin at its end.
        yield (
            f"(select true from tenure.run_labels l where l.key = {values.bind(key)} "
            f"and l.value = {values.bind(value)} and l.seq = r.seq)"
        )


def _lowest(where: RunFilter, values: Values) -> str:
    """A number that runs created in time are not below."""
    if where.created_from is None:
        return "0"
    return (
        "coalesce((select o.seq from tenure.runs o where o.seq % 64 = 0 and "
        f"o.created_at < {values.bind(where.created_from)}::timestamptz - {_DISORDER} "
        "order by o.created_at desc, o.seq desc limit 1), 0)"
    )


def _above(where: RunFilter, values: Values) -> str:
    """A number that runs created in time are below."""
    return (
        "coalesce((select o.seq from tenure.runs o where o.seq % 64 = 0 and "
        f"o.created_at >= {values.bind(where.created_to)}::timestamptz + {_DISORDER} "
        f"order by o.created_at, o.seq limit 1), {_LAST_SEQ})"
    )


def status_and_workflow(where: RunFilter, values: Values) -> Iterator[str]:
    if where.statuses:
        yield f"r.status = any({values.bind(sorted(where.statuses))}::text[])"
    if where.workflow_name is not None:
        yield f"r.workflow_name = {values.bind(where.workflow_name)}"


def _ordered(where: RunFilter, border: str, values: Values, limit: str) -> str:
    tail = f"order by r.seq desc limit {limit}"
    few = _few(where, border, values)
    conditions = list(conditions_of(where, values))
    below, lowest = _bounds(where, border, values)
    by_number = [f"r.seq < {below}", f"r.seq >= {lowest}", *conditions]
    if few is not None:
        both = " and ".join([*by_number, *status_and_workflow(where, values)])
        return f"select r.seq from ({few}) r where {both} {tail}"
    if where.labels:
        return _driven_by_label(where, conditions, values, (below, lowest), limit)
    if not where.statuses and where.workflow_name is None and where.queue is None:
        return f"select r.seq from tenure.runs r where {' and '.join(by_number)} {tail}"
    named: list[tuple[str, str]] = []
    if where.workflow_name is not None:
        named.append(("r.workflow_name", values.bind(where.workflow_name)))
    elif where.queue is not None:
        named.append(("r.queue", values.bind(where.queue)))
    parts: list[str] = []
    for status in sorted(where.statuses or set(RunStatus)):
        equal = [*named, ("r.status", values.bind(status.value))]
        within, order = newest_of(equal, "r.seq", below, lowest)
        parts.append(
            "(select r.seq from tenure.runs r where "
            f"{' and '.join(['r.owner_id is null', within, *conditions])} "
            f"order by {order} limit {limit})"
        )
    if not where.statuses or not where.statuses <= TERMINAL_RUN:
        both = " and ".join([*by_number, *status_and_workflow(where, values)])
        parts.append(f"(select r.seq from ({_HELD}) r where {both} {tail})")
    merged = " union all ".join(parts)
    return f"select p.seq from ({merged}) p order by p.seq desc limit {limit}"


def _bounds(where: RunFilter, border: str, values: Values) -> tuple[str, str]:
    """A number that runs of this page are below, and one that they are not below."""
    below = border
    if where.created_to is not None:
        below = f"least({border}, {_above(where, values)})"
    return below, _lowest(where, values)


def _few(where: RunFilter, border: str, values: Values) -> str | None:
    """Runs that ended have no owner, and those that wait for approval wait for people: these are
    few, whatever else is asked. ``offset 0`` keeps the planner from indexes of many more."""
    if where.owner_id is not None:
        few = f"o.owner_id = {values.bind(where.owner_id)}"
    elif where.held or where.canceling:
        return _HELD
    elif where.unapproved:
        few = f"o.readiness = 3 and o.seq < {border} order by o.seq desc"
    else:
        return None
    return f"select * from tenure.runs o where {few} offset 0"


def _driven_by_label(
    where: RunFilter,
    conditions: Sequence[str],
    values: Values,
    bounds: tuple[str, str],
    limit: str,
) -> str:
    """A label is the most selective thing that a filter of ended runs can name."""
    key, value = next(iter(where.labels.items()))
    both = " and ".join([*conditions, *status_and_workflow(where, values)])
    equal = [("l.key", values.bind(key)), ("l.value", values.bind(value))]
    within, order = newest_of(equal, "l.seq", *bounds)
    return (
        "select r.seq from tenure.run_labels l, "
        "lateral (select * from tenure.runs where seq = l.seq limit 1) r "
        f"where {within} and {both} order by {order} limit {limit}"
    )
