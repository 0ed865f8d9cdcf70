"""What may be asked of a list of runs, and how a page of answers looks."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import DecodeError, Struct, json

from tenure.model.approving import waits_for_approval
from tenure.model.errors import InvalidCursor
from tenure.model.snapshot import RunSummary
from tenure.model.status import RunStatus

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
    """Only runs that somebody owns, whether that owner lives or not."""
    canceling: bool = False
    """Only runs whose owner was asked to cancel them."""
    unapproved: bool = False
    """Only runs that still wait for somebody's approval, in time or not."""

    def __post_init__(self) -> None:
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
    """``cursor`` opens the next page; ``None`` on the last one. Opaque: only hand it back."""

    items: tuple[T, ...] = ()
    cursor: str | None = None


def bounded_limit(limit: int) -> int:
    """Pages are never empty by request nor unbounded by accident."""
    return max(1, min(limit, MAX_PAGE))


def encode_cursor(listing: str, *position: int) -> str:
    """A place in ``listing``, wrapped so that nobody is tempted to compute with it."""
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
