"""Runs: lists, one run, explain, record, definition, events, and the operators' verbs."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenure.gateway.auth import check_reaches, check_unlimited, own, queue_for, run_of
from tenure.gateway.calls import WORK, Answer, Call, StreamAnswer
from tenure.gateway.idempotency import key_of
from tenure.gateway.live.streams import all_of_version
from tenure.gateway.problems import FORBIDDEN, NOT_FOUND, Refusal
from tenure.gateway.routing import PRIVATE, comes_back, not_modified, place_after, wants_stream
from tenure.model.errors import NotSupported, StoreIncompatible
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import FeedPage, Position
from tenure.ports.leases import LeaseStore
from tenure.ports.store import ChangeFeed, Definitions, EventLog
from tenure.runtime.explain import explain_run
from tenure.runtime.recipe import Definition, decode_definition
from tenure.wire.callbacks import masked_target
from tenure.wire.masking import shown_text
from tenure.wire.output import StoredDefinition
from tenure.wire.runs import (
    EVENT_POSITION,
    AnnotateRequest,
    ApproveRequest,
    Cancellation,
    ChangePage,
    ChangesQuery,
    EventPage,
    EventsQuery,
    NoQuery,
    Reconciled,
    ReconcileRequest,
    RunPage,
    RunsQuery,
)


async def list_runs(call: Call[RunsQuery, None]) -> Answer:
    where = _filter(call)
    page = await call.parts.store.list_runs(where, limit=call.query.limit, cursor=call.query.cursor)
    return Answer(value=RunPage(runs=own(call.caller, page.items), cursor=page.cursor))


async def list_runnable(call: Call[RunsQuery, None]) -> Answer:
    store, where = call.parts.store, _filter(call)
    if not isinstance(store, LeaseStore):
        raise NotSupported(f"{type(store).__name__} keeps no leases: nothing can be claimed")
    page = await store.list_runnable(where, limit=call.query.limit, cursor=call.query.cursor)
    return Answer(value=RunPage(runs=own(call.caller, page.items), cursor=page.cursor))


def _filter(call: Call[RunsQuery, None]) -> RunFilter:
    asked = call.query
    labels = (label.partition("=") for label in asked.label)
    return RunFilter(
        statuses=frozenset(asked.status),
        workflow_name=asked.workflow,
        queue=queue_for(call.caller, asked.queue),
        labels={key: value for key, _, value in labels},
        created_from=asked.created_from,
        created_to=asked.created_to,
        owner_id=asked.owner,
        held=asked.held,
        unapproved=asked.unapproved,
        canceling=asked.canceling,
    )


async def get_run(call: Call[NoQuery, None]) -> Answer:
    run = await run_of(call)
    tag = entity_tag(run)
    unchanged = not_modified(tag, call.headers)
    return unchanged or Answer(value=shown(run), headers={"etag": tag, **PRIVATE})


def entity_tag(run: RunSnapshot) -> str:
    """Of everything that can change: version, and what changes without raising it (lease,
    callback)."""
    lease = run.lease_expires_at.timestamp() if run.lease_expires_at else 0
    dead = run.callback_error.at.timestamp() if run.callback_error else 0
    return f'W/"{run.version}-{run.fence}-{lease:.6f}-{run.owner_lost:d}-{dead:.6f}"'


def shown(run: RunSnapshot) -> RunSnapshot:
    """The run without the credentials of its callbacks."""
    if not run.callbacks:
        return run
    return replace(run, callbacks=tuple(map(masked_target, run.callbacks)))


async def explain(call: Call[NoQuery, None]) -> Answer:
    parts, run_id = call.parts, await check_reaches(call)
    said = await explain_run(parts.store, run_id, now=parts.now(), presence=parts.presence)
    return Answer(value=said)


# For programs that continue with a run.


async def get_record(call: Call[NoQuery, None]) -> Answer:
    """The complete record, for workers: it has the credentials of callbacks, which a run that is
    started again from this record needs."""
    run = await run_of(call)
    return Answer(value=run if call.caller.role in WORK else shown(run))


# Definitions: readable by any caller that may see the run, without the credentials of callbacks.


async def get_definition(call: Call[NoQuery, None]) -> Answer:
    store, run_id = call.parts.store, await check_reaches(call)
    if not isinstance(store, Definitions):
        raise NotSupported(f"{type(store).__name__} keeps no definitions")
    stored = await store.get_definition(run_id)
    if stored is None:
        raise Refusal(NOT_FOUND, f"run {run_id} was created without a definition")
    known = _understood(stored)
    if call.caller.role not in WORK:
        known = None if known is None else shown_definition(known)
        if known is None:
            said = "it cannot be read here and may hold credentials: it needs a worker token"
            raise Refusal(FORBIDDEN, said)
        stored = known.encode()
    return Answer(value=_shown(run_id, stored, known))


def shown_definition(definition: Definition) -> Definition | None:
    """``None`` for a workflow that cannot be parsed here."""
    text = shown_text(definition.workflow)
    return None if text is None else replace(definition, workflow=text)


def _understood(stored: str | None) -> Definition | None:
    """``None`` for a definition of another program."""
    try:
        return None if stored is None else decode_definition(stored)
    except StoreIncompatible:
        return None


def _shown(run_id: str, stored: str, known: Definition | None) -> StoredDefinition:
    return StoredDefinition(
        run_id=run_id,
        workflow=known.workflow if known else None,
        source=known.source if known else None,
        limit=known.limit if known else (),
        local=known.local if known else False,
        files=tuple(known.files) if known else (),
        stored=stored,
    )


# Events: of one run, and of all runs.


NOW = "now"
"""In place of a cursor: events from now on."""


async def run_events(call: Call[EventsQuery, None]) -> Answer | StreamAnswer:
    store = call.parts.store
    if not isinstance(store, EventLog):
        raise NotSupported(f"{type(store).__name__} keeps no journal")
    if wants_stream(call):
        return await _follow_run(call, store)
    run_id, after = await check_reaches(call), position_of(call.query.after)
    events = await store.read_events(run_id, after, limit=call.query.limit)
    last = events[-1].position if events else after
    return Answer(value=EventPage(events=tuple(events), after=str(last)))


async def _follow_run(call: Call[EventsQuery, None], log: EventLog) -> Answer | StreamAnswer:
    run = await run_of(call)
    after = position_of(place_after(call, EVENT_POSITION, call.query.after or "") or None)
    if comes_back(call) and run.ended and not await log.read_events(run.run_id, after, limit=1):
        return Answer(status=204)  # tells browsers not to reconnect
    return StreamAnswer(parts=call.parts.live.run(log, run, after))


def position_of(text: str | None) -> Position:
    """``version.seq``, or a whole version."""
    if text is None:
        return Position()
    version, _, seq = text.partition(".")
    return Position(int(version), int(seq)) if seq else all_of_version(int(version))


async def changes(call: Call[ChangesQuery, None]) -> Answer | StreamAnswer:
    check_unlimited(call.caller, "this feed has the events of all runs")
    store, asked = call.parts.store, call.query
    if not isinstance(store, ChangeFeed):
        raise NotSupported(f"{type(store).__name__} has no feed of all changes")
    after = asked.after
    if wants_stream(call):
        after = place_after(call, ".{1,500}", after or "") or None
    if after == NOW:
        after = await store.newest_change()
        found = FeedPage(events=(), cursor=after)
    else:
        found = await store.read_changes(after, limit=asked.limit)
    if wants_stream(call):
        return StreamAnswer(parts=call.parts.live.all_runs(store, after))
    return Answer(value=ChangePage(events=found.events, after=found.cursor))


# Verbs. The journal names the caller.


async def cancel(call: Call[NoQuery, Cancellation]) -> Answer:
    run_id, by = await check_reaches(call), call.caller.name
    run = await call.parts.desk.cancel(run_id, reason=call.body.reason, by=by)
    return Answer(value=shown(run))


async def approve(call: Call[NoQuery, ApproveRequest]) -> Answer:
    run_id, by = await check_reaches(call), call.caller.name
    run = await call.parts.desk.approve(run_id, by=by, note=call.body.note)
    return Answer(value=shown(run))


async def annotate(call: Call[NoQuery, AnnotateRequest]) -> Answer:
    run_id, by, key = await check_reaches(call), call.caller.name, await key_of(call)
    update_id = key.update_id if key else None
    run = await call.parts.desk.annotate(run_id, call.body.data, by=by, update_id=update_id)
    return Answer(value=shown(run))


async def reconcile(call: Call[NoQuery, ReconcileRequest]) -> Answer:
    check_unlimited(call.caller, "reconciling looks at all runs")
    reason = f"{call.body.reason} ({_asked_by(call)})"
    ended = await call.parts.desk.end_abandoned(reason=reason)
    return Answer(value=Reconciled(**ended._asdict()))


def _asked_by(call: Call[Any, Any]) -> str:
    return f"reconciled by {call.caller.name}"
