"""Owners of runs: whether one still drives its run, which owners have runs, and how to show one."""

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
"""Processes that run no more tasks."""


HANDED_OVER = "ended by its worker, which was told to stop"
"""The message of a task whose run is given back."""


class OwnerDoubt(Enum):
    """Why a run may have no live owner. An expired lease proves nothing: its owner may be frozen or
    cut off from the store, and continues if it is back before another worker claims the run."""

    GONE = "gone"
    """The owner's process is gone."""
    SILENT = "silent"
    """The owner's process is alive, but its lease has expired."""
    UNHEARD = "unheard"
    """The lease has expired; whether the process lives cannot be seen from here."""


def doubt_about(run: RunSummary, presence: Callable[[str], Presence]) -> OwnerDoubt | None:
    """``None``: the run has a live owner as far as can be seen, or needs none."""
    if run.ended:
        return None
    if run.owner_id is None:  # given back: the next worker continues it if it resumes
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
"""Runs with an owner. (The statuses are implied; they limit what integrators' stores list that do
not know the ``held`` condition.)"""


async def owned_runs(store: RunStateStore, where: RunFilter = HELD) -> list[Ownership]:
    """One call where the store has ``list_owners``; else all runs of ``where`` are read."""
    if isinstance(store, OwnerListing):
        return await until_answered(store.list_owners)
    return ownerships([run async for run in all_runs(store, where)])


class Unattended(NamedTuple):
    """Number of runs without a live owner (see ``doubt_about``), by what they wait for: a
    reconciler to end them, or a worker to resume them."""

    to_end: int = 0
    to_resume: int = 0


def unattended(owned: Iterable[Ownership], presence: Callable[[str], Presence]) -> Unattended:
    """Of an owner's lost runs, those with a cancel request count as lost first."""
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
    """An owner id as shown to operators: process, machine and name."""
    if owner_id is None:
        return "no owner"
    parts = owner_id.split("/")
    if len(parts) != _OWNER_PARTS:
        return owner_id
    name = parts[5].partition("@")[2]
    return f"process {parts[3]} on {parts[0]}" + (f" ({name})" if name else "")
