"""Queries: filters and pages of run lists, owners, ages, and the topics of wake-ups."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import DecodeError, Struct, json
from msgspec.structs import force_setattr

from tenure.model.decide import waits_for_approval
from tenure.model.errors import InvalidCursor
from tenure.model.leases import why_not_runnable
from tenure.model.snapshot import RunSummary
from tenure.model.status import Recovery, RunStatus

T = TypeVar("T")

MAX_PAGE = 1000


class RunFilter(Struct, frozen=True, kw_only=True):
    """All given conditions must hold. An empty status set means any status."""

    statuses: frozenset[RunStatus] = frozenset()
    workflow_name: str | None = None
    queue: str | None = None
    labels: dict[str, str] = {}
    created_from: datetime | None = None
    created_to: datetime | None = None
    """Exclusive."""
    owner_id: str | None = None
    held: bool = False
    """Only runs with an owner, alive or not."""
    canceling: bool = False
    """Only runs whose owner was asked to cancel them."""
    unapproved: bool = False
    """Only runs that still wait for approval, in time or not."""

    def __post_init__(self) -> None:
        force_setattr(self, "statuses", frozenset(map(RunStatus, self.statuses)))
        for moment in (self.created_from, self.created_to):
            if moment is not None and moment.tzinfo is None:
                raise ValueError(f"{moment.isoformat()} does not say its time zone")

    def matches(self, run: RunSummary) -> bool:
        created = run.created_at
        return (
            (not self.statuses or run.status in self.statuses)
            and (self.workflow_name is None or run.workflow_name == self.workflow_name)
            and (self.queue is None or run.queue == self.queue)
            and all(run.labels.get(key) == value for key, value in self.labels.items())
            and (
                self.created_from is None or (created is not None and created >= self.created_from)
            )
            and (self.created_to is None or (created is not None and created < self.created_to))
            and (self.owner_id is None or run.owner_id == self.owner_id)
            and (not (self.held or self.canceling) or run.owner_id is not None)
            and (not self.canceling or run.cancel_requested_at is not None)
            and (
                not self.unapproved or (run.status is RunStatus.QUEUED and waits_for_approval(run))
            )
        )


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """``cursor`` opens the next page; ``None`` on the last one. It is opaque."""

    items: tuple[T, ...] = ()
    cursor: str | None = None


def bounded_limit(limit: int) -> int:
    """At least 1 and at most ``MAX_PAGE``."""
    return max(1, min(limit, MAX_PAGE))


def encode_cursor(listing: str, *position: int) -> str:
    """An opaque cursor for a place in ``listing``."""
    return urlsafe_b64encode(json.encode((listing, *position))).decode().rstrip("=")


def decode_cursor(listing: str, cursor: str, places: int) -> tuple[int, ...]:
    """The position behind a cursor of this listing, or ``InvalidCursor``."""
    try:
        made_for, *position = json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (DecodeError, binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise InvalidCursor(f"{cursor[:80]!r} is not a cursor of this store") from error
    if made_for != listing or len(position) != places:
        raise InvalidCursor(f"this cursor belongs to another listing than {listing!r}")
    if not all(isinstance(part, int) and -(1 << 63) <= part < 1 << 63 for part in position):
        raise InvalidCursor(f"{cursor[:80]!r} is not a cursor of this store")
    return tuple(position)


class Ownership(Struct, frozen=True, kw_only=True):
    """Count of one owner's runs with the same recovery. ``owner_id`` ``None``: begun, released, and
    not to be resumed, so no worker will continue them."""

    owner_id: str | None
    recovery: Recovery
    runs: int
    lost: int
    """How many of them are under way without a live lease."""
    canceling: int = 0
    """How many were asked to stop: these are not resumed."""


def ownerships(runs: Iterable[RunSummary]) -> list[Ownership]:
    """Owners of ``runs`` as a store presents them."""
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


MAX_AGE_SECONDS = 100 * 366 * 86400.0
"""A century: older than anything in a store."""


def check_age(seconds: float) -> None:
    """``ValueError`` for an age that is negative (it would reach unfinished runs) or too large."""
    if not 0 <= seconds <= MAX_AGE_SECONDS:
        raise ValueError(f"a run ended from 0 seconds to a century ago, not {seconds}")


# Topics of wake-ups. A wake-up is a hint: it may be lost or spurious, carries no state, and a
# listener reads the store.


_QUEUE = "queue:"


def topic_of_queue(queue: str) -> str:
    """A run of this queue has become claimable."""
    return f"{_QUEUE}{queue}"


def is_of_queue(topic: str) -> bool:
    return topic.startswith(_QUEUE)


def topic_of_owner(owner_id: str) -> str:
    """An owner is asked to cancel a run."""
    return f"owner:{owner_id}"


def news(before: RunSummary | None, after: RunSummary, at: datetime) -> tuple[str, ...]:
    """The topics of one change. None for an owner's own writes, which are nearly all. What time
    alone brings about (an expired lease, ``run_after``) is no change."""
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
