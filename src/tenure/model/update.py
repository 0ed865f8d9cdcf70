"""The only ways a stored run changes: it is created, or an ``Update`` is applied to it.

An update is a delta. It names the version it was decided on (``base_version``), the right to write
(``lease``), and an id by which a repetition is recognised (``update_id``); state, journal and
callbacks change together or not at all. A run's journal is its events in order of (version, seq).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from tenure.model.errors import StoreRejected
from tenure.model.snapshot import Annotation, ErrorInfo, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus


class Event(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """``type`` is ``kind.what``: ``run.success``, ``host.failed``, ``lease.claimed`` …"""

    type: str
    status: str | None = None
    step: str | None = None
    step_index: int | None = None
    host: str | None = None
    message: str | None = None
    error: ErrorInfo | None = None
    data: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        return self.type.partition(".")[0]


class Position(NamedTuple):
    """A place in one run's journal; events after it are newer. Written ``version.seq``."""

    version: int = 0
    seq: int = -1

    def __str__(self) -> str:
        return f"{self.version}.{self.seq}"


class RecordedEvent(Event, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An event with its place in the journal, stamped by the store."""

    run_id: str
    version: int
    seq: int
    at: datetime
    fence: int

    @property
    def position(self) -> Position:
        return Position(self.version, self.seq)


class FeedPage(Struct, frozen=True, kw_only=True):
    """A part of the feed of all runs. ``cursor`` opens the next part, even if still empty."""

    events: tuple[RecordedEvent, ...]
    cursor: str


def record(
    event: Event, *, run_id: str, version: int, seq: int, at: datetime, fence: int
) -> RecordedEvent:
    return RecordedEvent(
        type=event.type,
        status=event.status,
        step=event.step,
        step_index=event.step_index,
        host=event.host,
        message=event.message,
        error=event.error,
        data=event.data,
        run_id=run_id,
        version=version,
        seq=seq,
        at=at,
        fence=fence,
    )


class Fencing(Struct, frozen=True, gc=False):
    """The right to write as a run's owner: obtained once, at the claim."""

    owner_id: str
    fence: int


class LeaseRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Ask for a run's ownership. ``claim_id`` identifies this request, so that a repetition
    after a lost answer returns what the first one got, renewed.

    ``expired=False`` takes over no expired lease: for a process that has just started or has just
    met a store error, since the owner may be about to come back. A request repeated after an error
    sets it too. The lease of an owner that cannot come back, because the store's machine has
    rebooted since, is taken all the same.
    """

    owner_id: str
    seconds: float
    claim_id: str
    expired: bool = True
    token_id: str | None = None
    """Of the token that it came with through a gateway, which alone may use the lease; ``None``:
    made at the store itself, for no token."""

    def __post_init__(self) -> None:
        check_lease_seconds(self.seconds)


MAX_LEASE_SECONDS = 366 * 86400.0


def check_lease_seconds(seconds: float) -> None:
    if not 0 <= seconds <= MAX_LEASE_SECONDS:
        raise ValueError(f"a lease lasts from 0 seconds to a year, not {seconds}")


class ItemChange(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Changes of a host, or of one loop item on it. Times are stamped by the store."""

    status: HostStatus | UnsetType = UNSET
    message: str | UnsetType | None = UNSET
    kind: str | UnsetType | None = UNSET
    exit_code: int | UnsetType | None = UNSET
    attempts: int | UnsetType = UNSET
    changed: bool | UnsetType | None = UNSET
    stdout: str | UnsetType | None = UNSET
    stderr: str | UnsetType | None = UNSET
    truncated: bool | UnsetType = UNSET
    vars: dict[str, Any] | UnsetType = UNSET
    withheld: tuple[str, ...] | UnsetType = UNSET


class HostChange(ItemChange, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    items: dict[int, ItemChange] = {}
    """By position in the loop; the next free position adds an item."""


class StepChange(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    status: StepStatus | UnsetType = UNSET
    message: str | UnsetType | None = UNSET
    hosts: dict[str, HostChange] = {}
    error: ErrorInfo | UnsetType = UNSET
    """Why it failed. For the journal only: the record has the run's error."""
    plan: StepState | None = None
    """Adds a step that was not planned at creation (a handler): name, kind, action, hosts and
    the notifying step."""


class CancelRequest(Struct, frozen=True, gc=False, kw_only=True):
    reason: str | None = None
    by: str | None = None


class Consent(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An operator approves a run that asks for it."""

    by: str
    note: str | None = None


class CallbackFailure(Struct, frozen=True, gc=False, kw_only=True):
    """A callback that was given up by the process that kept it in memory."""

    target: str
    event: str
    error: str
    attempts: int


class RunChange(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    status: RunStatus | UnsetType = UNSET
    message: str | UnsetType | None = UNSET
    error: ErrorInfo | UnsetType | None = UNSET
    last_error: ErrorInfo | UnsetType | None = UNSET
    interrupted_reason: str | UnsetType | None = UNSET
    unconfirmed_hosts: tuple[str, ...] | UnsetType = UNSET
    cancel: CancelRequest | UnsetType = UNSET
    approve: Consent | UnsetType = UNSET
    if_overdue: bool = False
    """Apply only if the run was not approved in time, by the store's clock in this statement."""
    annotate: tuple[Annotation, ...] = ()
    callback_failed: CallbackFailure | UnsetType = UNSET
    journal_only: bool = False
    """The record stays as it is; only the events are written. The update must name its base, by
    which a repetition is recognised."""


NO_RUN_CHANGE = RunChange()


class Changes(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    run: RunChange = NO_RUN_CHANGE
    steps: dict[int, StepChange] = {}


class NewDelivery(Struct, frozen=True, gc=False, kw_only=True):
    """A callback for event number ``seq`` of its update."""

    id: str
    target: str
    seq: int


class Effect(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """State, journal and callbacks that are written together."""

    changes: Changes = Changes()
    events: tuple[Event, ...] = ()
    deliveries: tuple[NewDelivery, ...] = ()


class Update(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="update"):
    """A delta for one run.

    ``lease`` is the owner's right; an update without it is an operator's. ``base_version``
    ``None`` means "any": allowed for operators, whose changes commute with the owner's.
    ``if_unowned`` replaces ``effect`` when, in the statement that writes, the run has not ended and
    has no live lease. Cancel is built from it: ask the owner, or end the run.
    """

    run_id: str
    update_id: str
    base_version: int | None = None
    lease: Fencing | None = None
    effect: Effect = Effect()
    if_unowned: Effect | None = None
    release: bool = False


class NewRun(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="create"):
    """A run to create: ``queued`` for workers, or ``running`` with its first lease and its
    first intents already in ``snapshot``, so that no worker can claim an embedded run.

    The store sets version, fence and every time; it ignores those of ``snapshot``.
    """

    snapshot: RunSnapshot
    update_id: str
    definition: str | None = None
    lease: LeaseRequest | None = None
    approval_seconds: float | None = None
    """How long it may wait for approval; the store's clock turns it into ``expires_at``."""
    events: tuple[Event, ...] = ()
    deliveries: tuple[NewDelivery, ...] = ()


Write = NewRun | Update


def run_id_of(write: Write) -> str:
    """``StoreRejected`` for a value that is no write: it must not harm the rest of a batch."""
    run_id: object = None
    if isinstance(write, Update):
        run_id = write.run_id
    elif isinstance(write, NewRun):
        run_id = write.snapshot.run_id
    if not isinstance(run_id, str):
        raise StoreRejected(repr(run_id)[:80], "is not a creation or an update of a run")
    return run_id


class Receipt(Struct, frozen=True, gc=False, kw_only=True):
    """An accepted write: its version, and the present state of the run.

    A repeated write gets the version of its first answer and otherwise the present state.
    """

    run_id: str
    version: int
    fence: int
    status: RunStatus
    updated_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    lease_expires_at: datetime | None = None


def receipt(run: RunSnapshot, version: int, lease_expires_at: datetime | None = None) -> Receipt:
    return Receipt(
        run_id=run.run_id,
        version=version,
        fence=run.fence,
        status=run.status,
        updated_at=run.updated_at,
        cancel_requested_at=run.cancel_requested_at,
        lease_expires_at=lease_expires_at,
    )
