"""Who has runs, and how many of them nobody keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from tenure.model.snapshot import RunSummary
from tenure.model.status import Recovery


class Ownership(Struct, frozen=True, kw_only=True):
    """The runs of one recovery that one owner has. ``None`` for an owner: begun and given back, not
    to be resumed; nobody will drive them."""

    owner_id: str | None
    recovery: Recovery
    runs: int
    lost: int
    """Of those, how many are under way and have no live lease."""
    canceling: int = 0
    """And how many were asked to stop: nobody resumes these."""


def ownerships(runs: Iterable[RunSummary]) -> list[Ownership]:
    """Of runs as a store presents them."""
    having: Counter[tuple[str | None, Recovery]] = Counter()
    losing: Counter[tuple[str | None, Recovery]] = Counter()
    stopping: Counter[tuple[str | None, Recovery]] = Counter()
    for run in runs:
        stuck = run.owner_lost and run.recovery is Recovery.INTERRUPT
        if run.owner_id is not None or stuck:
            having[run.owner_id, run.recovery] += 1
            losing[run.owner_id, run.recovery] += run.owner_lost
            stopping[run.owner_id, run.recovery] += run.cancel_requested_at is not None
    return [
        Ownership(
            owner_id=whose[0],
            recovery=whose[1],
            runs=number,
            lost=losing[whose],
            canceling=stopping[whose],
        )
        for whose, number in having.items()
    ]
