"""Writes as callers hand them over: each is checked, and copied, before a batch depends on it."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.model.codec import storable, storable_together
from tenure.model.errors import StoreRejected, TenureError
from tenure.model.update import Write, run_id_of


def incoming(writes: Sequence[Write]) -> list[Write] | list[Write | TenureError]:
    """Each as ``storable`` gives it back, or why it cannot be written. All in one go if nothing is
    wrong with any of them; else one by one, so that what is wrong harms nobody else."""
    try:
        run_ids = {run_id_of(write) for write in writes}
    except StoreRejected:
        run_ids = set()
    together = storable_together(writes) if len(run_ids) == len(writes) else None
    if together is not None:
        return together
    seen: set[str] = set()
    return [_checked(write, seen) for write in writes]


def _checked(write: Write, seen: set[str]) -> Write | TenureError:
    try:
        run_id = run_id_of(write)
        if run_id in seen:
            raise StoreRejected(run_id, "is written twice in one batch")
        seen.add(run_id)
        return storable(run_id, write)
    except TenureError as refusal:
        return refusal
