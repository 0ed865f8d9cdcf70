"""Pages of runs by keyset: each page costs the same, however long the history.

The conditions differ from call to call, so these statements are put together; from fixed
fragments only, with every value bound. A workflow, a queue or a status set is asked for one status
at a time, each from its own ordered index range, and the few rows of each range are merged with
those that match among the runs with an owner, which are in none of these ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.model.query import RunFilter
from tenure.model.status import TERMINAL_RUN, RunStatus
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
    conditions = " and ".join([f"r.seq < {border}", *conditions_of(where, values)])
    seqs = _ordered(where, border, conditions, values, values.bind(limit))
    statement = (
        f"select u.seq, json_build_array({FRAGMENTS['head']}, s.summary)::text from ({seqs}) u, "
        "lateral (select * from tenure.runs where seq = u.seq limit 1) r, "
        "lateral (select * from tenure.run_specs where seq = u.seq limit 1) s "
        "order by u.seq desc"
    )
    return statement, values.all


def conditions_of(where: RunFilter, values: Values) -> Iterator[str]:
    """All but status and workflow, which choose an index."""
    if where.queue is not None:
        yield f"r.queue = {values.bind(where.queue)}"
    if where.owner_id is not None:
        yield f"r.owner_id = {values.bind(where.owner_id)}"
    if where.held or where.canceling:
        yield "r.owner_id is not null"
    if where.canceling:
        yield "r.cancel_requested_at is not null"
    if where.unapproved:
        yield "r.readiness = 3"
    if where.created_from is not None:
        first = f"{values.bind(where.created_from)}::timestamptz"
        yield f"r.created_at >= {first}"
        yield (
            "r.seq >= coalesce((select o.seq from tenure.runs o where o.seq % 64 = 0 and "
            f"o.created_at < {first} - {_DISORDER} "
            "order by o.created_at desc, o.seq desc limit 1), 0)"
        )
    if where.created_to is not None:
        last = f"{values.bind(where.created_to)}::timestamptz"
        yield f"r.created_at < {last}"
        yield (
            "r.seq <= coalesce((select o.seq from tenure.runs o where o.seq % 64 = 0 and "
            f"o.created_at >= {last} + {_DISORDER} "
            f"order by o.created_at, o.seq limit 1), {_LAST_SEQ})"
        )
    for key, value in where.labels.items():
        # As a value, not `exists`: the planner would make that a join, and might begin at its end.
        yield (
            f"(select true from tenure.run_labels l where l.key = {values.bind(key)} "
            f"and l.value = {values.bind(value)} and l.seq = r.seq)"
        )


def status_and_workflow(where: RunFilter, values: Values) -> Iterator[str]:
    if where.statuses:
        yield f"r.status = any({values.bind(sorted(where.statuses))}::text[])"
    if where.workflow_name is not None:
        yield f"r.workflow_name = {values.bind(where.workflow_name)}"


def _ordered(where: RunFilter, border: str, conditions: str, values: Values, limit: str) -> str:
    tail = f"order by r.seq desc limit {limit}"
    few = _few(where, border, values)
    if few is not None:
        both = " and ".join([conditions, *status_and_workflow(where, values)])
        return f"select r.seq from ({few}) r where {both} {tail}"
    if where.labels:
        return _driven_by_label(where, conditions, values, limit)
    if not where.statuses and where.workflow_name is None and where.queue is None:
        return f"select r.seq from tenure.runs r where {conditions} {tail}"
    named = ""
    if where.workflow_name is not None:
        named = f"r.workflow_name = {values.bind(where.workflow_name)} and "
    parts = [
        f"(select r.seq from tenure.runs r where r.owner_id is null and {named}"
        f"r.status = {values.bind(status.value)} and {conditions} {tail})"
        for status in sorted(where.statuses or set(RunStatus))
    ]
    if not where.statuses or not where.statuses <= TERMINAL_RUN:
        both = " and ".join([conditions, *status_and_workflow(where, values)])
        parts.append(f"(select r.seq from ({_HELD}) r where {both} {tail})")
    merged = " union all ".join(parts)
    return f"select p.seq from ({merged}) p order by p.seq desc limit {limit}"


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


def _driven_by_label(where: RunFilter, conditions: str, values: Values, limit: str) -> str:
    """A label is the most selective thing that a filter of ended runs can name."""
    key, value = next(iter(where.labels.items()))
    both = " and ".join([conditions, *status_and_workflow(where, values)])
    return (
        "select r.seq from (select l.seq from tenure.run_labels l "
        f"where l.key = {values.bind(key)} and l.value = {values.bind(value)} "
        "order by l.seq desc) d, "
        "lateral (select * from tenure.runs where seq = d.seq limit 1) r "
        f"where {both} order by d.seq desc limit {limit}"
    )
