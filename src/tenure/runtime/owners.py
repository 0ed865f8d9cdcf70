"""Whether a run's owner still drives it, who has runs at all, and what to call an owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from enum import Enum
from functools import partial
from typing import NamedTuple

from tenure.aio import until_answered
from tenure.model.query import Ownership, RunFilter, ownerships
from tenure.model.snapshot import RunSummary
from tenure.model.status import Recovery, RunStatus
from tenure.ports.leases import OwnerListing, Presence
from tenure.ports.store import RunStateStore

_OWNER_PARTS = 6
NO_LONGER = (Presence.GONE, Presence.ENDING)
"""Of processes that do nothing any more."""


HANDED_OVER = "ended by its worker, which was told to stop"
"""Of a task whose run is given back."""


class OwnerDoubt(Enum):
    """Why nobody may be driving a run any more. A lease that ran out proves nothing: its owner
    may be frozen or cut off from the store, and goes on if it is back before anybody claims."""

    GONE = "gone"
    """Its process is gone for certain."""
    SILENT = "silent"
    """Its process is there, and its lease is over."""
    UNHEARD = "unheard"
    """Its lease is over; whether its process lives cannot be seen from here."""


def doubt_about(run: RunSummary, presence: Callable[[str], Presence]) -> OwnerDoubt | None:
    """``None``: as far as anybody can tell the run is driven, or needs nobody to drive it."""
    if run.ended:
        return None
    if run.owner_id is None:  # given back: whoever works next goes on, if the run allows it
        stuck = run.owner_lost and run.recovery is Recovery.INTERRUPT
        return OwnerDoubt.UNHEARD if stuck else None
    seen = presence(run.owner_id)
    if seen in NO_LONGER:
        return OwnerDoubt.GONE
    if not run.owner_lost:
        return None
    return OwnerDoubt.SILENT if seen is Presence.ALIVE else OwnerDoubt.UNHEARD


UNFINISHED = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})
HELD = RunFilter(held=True, statuses=UNFINISHED)
"""Few, however many runs are queued. (The statuses go without saying. They are said for stores of
others, written before there was this condition: what such a store lists besides is left alone.)
"""


async def owned_runs(store: RunStateStore, where: RunFilter = HELD) -> list[Ownership]:
    """One question, where the store can answer it; else every run that is meant is read."""
    if isinstance(store, OwnerListing):
        return await until_answered(store.list_owners)
    return ownerships([run async for run in all_runs(store, where)])


class Unattended(NamedTuple):
    """How many runs there is a doubt about, as ``doubt_about`` has it for one; by who is to come:
    a reconciler, or a worker."""

    to_end: int = 0
    to_resume: int = 0


def unattended(owned: Iterable[Ownership], presence: Callable[[str], Presence]) -> Unattended:
    """Of an owner's lost runs those that were asked to stop count first."""
    found = Unattended()
    for each in owned:
        gone = each.owner_id is not None and presence(each.owner_id) in NO_LONGER
        number = each.runs if gone else each.lost
        resumes = each.recovery is Recovery.RESUME
        to_end = min(number, each.canceling) if resumes else number
        found = Unattended(found.to_end + to_end, found.to_resume + number - to_end)
    return found


async def all_runs(store: RunStateStore, where: RunFilter) -> AsyncIterator[RunSummary]:
    cursor = None
    while True:
        page = await until_answered(partial(store.list_runs, where, limit=500, cursor=cursor))
        for run in page.items:
            yield run
        cursor = page.cursor
        if cursor is None:
            return


def owner_label(owner_id: str | None) -> str:
    """Which process that is, without the parts that only programs compare."""
    if owner_id is None:
        return "nobody"
    parts = owner_id.split("/")
    if len(parts) != _OWNER_PARTS:
        return owner_id
    name = parts[5].partition("@")[2]
    return f"process {parts[3]} on {parts[0]}" + (f" ({name})" if name else "")
