"""What happened: to one run, and to all of them."""

from __future__ import annotations

from tenure.gateway.calls import Answer, Call
from tenure.gateway.reaching import check_reaches, check_unlimited
from tenure.model.errors import NotSupported
from tenure.model.events import Position
from tenure.ports.change_feed import ChangeFeed
from tenure.ports.event_log import EventLog
from tenure.wire.listings import ChangePage, ChangesQuery, EventPage, EventsQuery

_WHOLE_VERSION = 1 << 31


async def run_events(call: Call[EventsQuery, None]) -> Answer:
    store, run_id = call.parts.store, await check_reaches(call)
    if not isinstance(store, EventLog):
        raise NotSupported(f"{type(store).__name__} keeps no journal")
    after = position_of(call.query.after)
    events = await store.read_events(run_id, after, limit=call.query.limit)
    last = events[-1].position if events else after
    return Answer(value=EventPage(events=tuple(events), after=str(last)))


def position_of(text: str | None) -> Position:
    """``version.seq``, or a version as a whole."""
    if text is None:
        return Position()
    version, _, seq = text.partition(".")
    return Position(int(version), int(seq) if seq else _WHOLE_VERSION)


async def changes(call: Call[ChangesQuery, None]) -> Answer:
    check_unlimited(call.caller, "this feed has the events of all runs")
    store, asked = call.parts.store, call.query
    if not isinstance(store, ChangeFeed):
        raise NotSupported(f"{type(store).__name__} has no feed of all changes")
    if asked.after == "now":
        return Answer(value=ChangePage(events=(), after=await store.newest_change()))
    found = await store.read_changes(asked.after, limit=asked.limit)
    return Answer(value=ChangePage(events=found.events, after=found.cursor))
