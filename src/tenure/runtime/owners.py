"""Whether a run's owner still drives it, and what to call that owner."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tenure.model.snapshot import RunSummary
from tenure.model.status import Recovery
from tenure.ports.liveness import Presence

_OWNER_PARTS = 6


class Doubt(Enum):
    """Why nobody may be driving a run any more. A lease that ran out proves nothing: its owner
    may be frozen or cut off from the store, and goes on if it is back before anybody claims."""

    GONE = "gone"
    """Its process is gone for certain."""
    SILENT = "silent"
    """Its process is there, and its lease is over."""
    UNHEARD = "unheard"
    """Its lease is over; whether its process lives cannot be seen from here."""


def doubt_about(run: RunSummary, presence: Callable[[str], Presence]) -> Doubt | None:
    """``None``: as far as anybody can tell the run is driven, or needs nobody to drive it."""
    if run.ended:
        return None
    if run.owner_id is None:  # given back: whoever works next goes on, if the run allows it
        stuck = run.owner_lost and run.recovery is Recovery.INTERRUPT
        return Doubt.UNHEARD if stuck else None
    seen = presence(run.owner_id)
    if seen in (Presence.GONE, Presence.ENDING):
        return Doubt.GONE
    if not run.owner_lost:
        return None
    return Doubt.SILENT if seen is Presence.ALIVE else Doubt.UNHEARD


def owner_label(owner_id: str | None) -> str:
    """Which process that is, without the parts that only programs compare."""
    if owner_id is None:
        return "nobody"
    parts = owner_id.split("/")
    if len(parts) != _OWNER_PARTS:
        return owner_id
    name = parts[5].partition("@")[2]
    return f"process {parts[3]} on {parts[0]}" + (f" ({name})" if name else "")
