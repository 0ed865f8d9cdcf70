"""Which changes of a run somebody may be waiting for, and by which names they wait.

A wake-up is a hint: it may be lost, and may come for nothing. It carries no state, and whoever
hears it asks the store. One kind does carry some: with a run that was submitted alone its record
may come along, under a seal that only its store can make (``ports.beginnings.Offering``). That is
believed; whether the run still waits the store says, in the write that begins it.
"""

from __future__ import annotations

from datetime import datetime

from tenure.model.leasing import why_not_runnable
from tenure.model.snapshot import RunSummary

_QUEUE = "queue:"


def topic_of_queue(queue: str) -> str:
    """A run of this queue has become claimable."""
    return f"{_QUEUE}{queue}"


def is_of_queue(topic: str) -> bool:
    return topic.startswith(_QUEUE)


def topic_of_owner(owner_id: str) -> str:
    """Somebody asks this owner to cancel a run."""
    return f"owner:{owner_id}"


def news(before: RunSummary | None, after: RunSummary, at: datetime) -> tuple[str, ...]:
    """The topics of one change. Nothing for what an owner writes of his own run: that is nearly
    everything. What time alone brings about (a lease that ends, a ``run_after``) is no change."""
    if after.owner_id is None:
        if _is_free(after, at) and not (before is not None and _is_free(before, at)):
            return (topic_of_queue(after.queue),)
    elif after.cancel_requested_at is not None and (
        before is None or before.cancel_requested_at is None
    ):
        return (topic_of_owner(after.owner_id),)
    return ()


def _is_free(run: RunSummary, at: datetime) -> bool:
    return run.owner_id is None and why_not_runnable(run, at) is None
