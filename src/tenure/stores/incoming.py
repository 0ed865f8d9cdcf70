"""Writes as callers hand them over: each is checked, and copied, before a batch depends on it."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.model.codec import storable, storable_together
from tenure.model.errors import StoreRejected, TenureError
from tenure.model.update import Write, run_id_of


def incoming(writes: Sequence[Write]) -> list[Write | TenureError]:
    """Each as ``storable`` gives it back, or why it cannot be written."""
    apart = told_apart(writes)
    refusals = [each for each in apart if isinstance(each, TenureError)]
    return [_checked(each) for each in apart] if refusals else checked(writes)


def told_apart(writes: Sequence[Write]) -> list[Write | TenureError]:
    """As they are, still to be checked; or a refusal, if it is none or its run has one already."""
    seen: set[str] = set()
    apart: list[Write | TenureError] = []
    for write in writes:
        try:
            run_id = run_id_of(write)
        except StoreRejected as refusal:
            apart.append(refusal)
            continue
        if run_id in seen:
            apart.append(StoreRejected(run_id, "is written twice in one batch"))
        else:
            seen.add(run_id)
            apart.append(write)
    return apart


def checked(writes: Sequence[Write]) -> list[Write | TenureError]:
    """All in one go if nothing is wrong with any of them; else one by one, so that what is wrong
    harms nobody else."""
    together = storable_together(writes)
    return [_checked(write) for write in writes] if together is None else [*together]


def _checked(write: Write | TenureError) -> Write | TenureError:
    if isinstance(write, TenureError):
        return write
    try:
        return storable(run_id_of(write), write)
    except TenureError as refusal:
        return refusal
