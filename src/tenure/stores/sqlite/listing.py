"""Pages of runs by keyset: each page costs the same, however long the history.

The conditions differ from call to call, so these statements are put together; from fixed
fragments only, with every value bound. A workflow, a queue or a status set is asked for one status
at a time, each from its own ordered index range, and the few rows of each range are merged.
"""

from __future__ import annotations

from typing import Any

from tenure.model.query import RunFilter
from tenure.model.status import RunStatus
from tenure.stores.sqlite.rows import micros
from tenure.stores.sqlite.statements import Statements

_Values = list[Any]


def newest_seqs(sql: Statements, where: RunFilter, before: int, limit: int) -> list[int]:
    """Numbers of matching runs below ``before``, newest first."""
    conditions, values = _conditions(where)
    conditions.append("r.seq < ?")
    values.append(before)
    statement, values = _ordered(where, " and ".join(conditions), values, limit)
    return [seq for (seq,) in sql.built(statement, values)]


def runnable_conditions(where: RunFilter) -> tuple[str, _Values]:
    """For lists in claim order, which drive by queue themselves."""
    conditions, values = _conditions(where)
    if where.statuses:
        conditions.append(_in("r.status", len(where.statuses)))
        values += sorted(where.statuses)
    if where.workflow_name is not None:
        conditions.append("r.workflow_name = ?")
        values.append(where.workflow_name)
    return "".join(f" and {condition}" for condition in conditions), values


def _conditions(where: RunFilter) -> tuple[list[str], _Values]:
    """All but status and workflow."""
    conditions: list[str] = []
    values: _Values = []
    if where.queue is not None:
        conditions.append("r.queue = ?")
        values.append(where.queue)
    if where.owner_id is not None:
        conditions.append("r.owner_id = ?")
        values.append(where.owner_id)
    if where.held or where.canceling:
        conditions.append("r.owner_id is not null")
    if where.canceling:
        conditions.append("r.cancel_requested_at is not null")
    if where.unapproved:
        conditions.append("r.readiness = 3")
    if where.created_from is not None:
        # Creation times never fall with seq: a bound in time is a bound in numbers.
        conditions.append(
            "r.seq >= (select min(seq) from runs where created_at = "
            "(select min(created_at) from runs where created_at >= ?))"
        )
        values.append(micros(where.created_from))
    if where.created_to is not None:
        conditions.append(
            "r.seq <= (select max(seq) from runs where created_at = "
            "(select max(created_at) from runs where created_at < ?))"
        )
        values.append(micros(where.created_to))
    for key, value in where.labels.items():
        conditions.append(
            "exists (select 1 from run_labels l where l.key = ? and l.value = ? and l.seq = r.seq)"
        )
        values += [key, value]
    return conditions, values


def _ordered(where: RunFilter, conditions: str, values: _Values, limit: int) -> tuple[str, _Values]:
    tail = f"{conditions} order by r.seq desc limit ?"
    few = _index_of_few(where)
    if few is not None:
        extra, more = _status_and_workflow(where)
        source = f"runs r indexed by {few}"
        return f"select r.seq from {source} where {extra}{tail}", [*more, *values, limit]
    if where.labels:
        return _driven_by_label(where, conditions, values, limit)
    if not where.statuses and where.workflow_name is None and where.queue is None:
        return f"select r.seq from runs r where {tail}", [*values, limit]
    parts: list[str] = []
    bound: _Values = []
    for status in sorted(where.statuses or set(RunStatus)):
        named = "" if where.workflow_name is None else "r.workflow_name = ? and "
        parts.append(
            f"select * from (select r.seq from runs r where {named}r.status = ? and {tail})"
        )
        bound += [*([where.workflow_name] if named else []), status, *values, limit]
    merged = " union all ".join(parts)
    return f"select seq from ({merged}) order by seq desc limit ?", [*bound, limit]


def _index_of_few(where: RunFilter) -> str | None:
    """Runs that ended have no owner, and those that wait for approval wait for people: these are
    few, whatever else is asked."""
    if where.owner_id is not None or where.held or where.canceling:
        return "runs_by_owner"
    return "runs_unapproved" if where.unapproved else None


def _driven_by_label(
    where: RunFilter, conditions: str, values: _Values, limit: int
) -> tuple[str, _Values]:
    """A label is the most selective thing that a filter of ended runs can name."""
    key, value = next(iter(where.labels.items()))
    extra, more = _status_and_workflow(where)
    statement = (
        "select r.seq from run_labels d cross join runs r on r.seq = d.seq "
        f"where d.key = ? and d.value = ? and {extra}{conditions} order by d.seq desc limit ?"
    )
    return statement, [key, value, *more, *values, limit]


def _status_and_workflow(where: RunFilter) -> tuple[str, _Values]:
    text = ""
    values: _Values = []
    if where.statuses:
        text += f"{_in('r.status', len(where.statuses))} and "
        values += sorted(where.statuses)
    if where.workflow_name is not None:
        text += "r.workflow_name = ? and "
        values.append(where.workflow_name)
    return text, values


def _in(column: str, count: int) -> str:
    return f"{column} in ({', '.join('?' * count)})"
