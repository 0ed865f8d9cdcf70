"""What happened, and what happens: to one run, and to all of them."""

from __future__ import annotations

from tenure.gateway.calls import Answer, Call, StreamAnswer
from tenure.gateway.following import comes_back, place_after, wants_stream
from tenure.gateway.live.journals import all_of_version
from tenure.gateway.reaching import check_reaches, check_unlimited, run_of
from tenure.model.errors import NotSupported
from tenure.model.events import Changes, Position
from tenure.ports.change_feed import ChangeFeed
from tenure.ports.event_log import EventLog
from tenure.wire.listings import (
    EVENT_POSITION,
    ChangePage,
    ChangesQuery,
    EventPage,
    EventsQuery,
)

NOW = "now"
"""In place of a cursor: whatever happens next."""


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
        return Answer(status=204)  # by which browsers know that they need not come again
    return StreamAnswer(parts=call.parts.live.run(log, run, after))


def position_of(text: str | None) -> Position:
    """``version.seq``, or a version as a whole."""
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
        found = Changes(events=(), cursor=after)
    else:
        found = await store.read_changes(after, limit=asked.limit)
    if wants_stream(call):
        return StreamAnswer(parts=call.parts.live.all_runs(store, after))
    return Answer(value=ChangePage(events=found.events, after=found.cursor))
