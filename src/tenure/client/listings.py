"""Lists of runs, asked for a page at a time."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.client.line import Line
from tenure.model.errors import InvalidCursor, StoreIncompatible
from tenure.model.query import Page, RunFilter, bounded_limit
from tenure.model.snapshot import RunSummary
from tenure.wire.listings import RunPage


async def listed(
    line: Line, path: str, where: RunFilter, limit: int, cursor: str | None
) -> Page[RunSummary]:
    """``InvalidCursor``."""
    query = [*asked_for(where), ("limit", str(bounded_limit(limit)))]
    if cursor is not None:
        query.append(("cursor", cursor))
    try:
        for pair in query:
            "=".join(pair).encode()
    except UnicodeEncodeError:  # half a surrogate pair: nothing that is stored can be equal to it
        if cursor is not None and not cursor.isascii():
            raise InvalidCursor(f"{cursor!a} is not a cursor of this store") from None
        return Page()
    wrong = StoreIncompatible if cursor is None else InvalidCursor
    found = await line.ask("GET", path, RunPage, query=query, malformed=wrong)
    runs = tuple(run for run in found.runs if where.matches(run)) if _rest(where) else found.runs
    return Page(items=runs, cursor=found.cursor)


def asked_for(where: RunFilter) -> Iterator[tuple[str, str]]:
    for status in sorted(where.statuses):
        yield "status", status
    for key, value in where.labels.items():
        if _can_be_asked(key):
            yield "label", f"{key}={value}"
    named = {"workflow": where.workflow_name, "queue": where.queue, "owner": where.owner_id}
    for name, wanted in named.items():
        if wanted is not None:
            yield name, wanted
    window = {"created_from": where.created_from, "created_to": where.created_to}
    for name, moment in window.items():
        if moment is not None:
            yield name, moment.isoformat()
    if where.held:
        yield "held", "true"
    if where.unapproved:
        yield "unapproved", "true"
    if where.canceling:
        yield "canceling", "true"


def _rest(where: RunFilter) -> bool:
    """Something is left to be looked at here."""
    return not all(map(_can_be_asked, where.labels))


def _can_be_asked(label: str) -> bool:
    """``key=value`` does not say where a key ends that is empty or holds the sign itself."""
    return bool(label) and "=" not in label
