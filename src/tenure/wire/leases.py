"""Ownership of runs (claim, renew, release), workers, wake-ups, and writes of runs.

``claim_id`` and ``update_id`` identify a request: a client without an answer sends it again under
the same id and gets the first answer. Without an id a repetition is a new request.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from tenure.model.leases import Purpose, Renewal
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import MAX_LEASE_SECONDS, NewRun, Receipt, Update
from tenure.wire.answers import PRINTABLE, Name, Problem

OwnerId = Annotated[str, Meta(min_length=1, max_length=500, pattern=PRINTABLE)]
RequestId = Annotated[str, Meta(min_length=1, max_length=200, pattern=PRINTABLE)]
LeaseSeconds = Annotated[float, Meta(ge=0, le=MAX_LEASE_SECONDS)]
Fence = Annotated[int, Meta(ge=0, le=1 << 53)]
MOST_CLAIMED = 100
MOST_RENEWED = 10_000
LONGEST_WAIT = 20.0
"""Seconds: less than the idle time-out of proxies in between."""
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]


class LeaseClaim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``expired`` false takes no expired lease over: the owner may be about to come back."""

    owner_id: OwnerId
    lease_seconds: LeaseSeconds
    claim_id: RequestId | None = None
    purpose: Purpose = Purpose.EXECUTE
    expired: bool = True


class Claims(LeaseClaim, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Up to ``limit`` runs of these queues. ``dead_owners`` are certainly gone: their leases count
    as expired."""

    limit: Annotated[int, Meta(ge=1, le=MOST_CLAIMED)] = 1
    queues: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ("default",)
    dead_owners: Annotated[tuple[OwnerId, ...], Meta(max_length=10_000)] = ()


class GivenLease(Struct, frozen=True, kw_only=True):
    """``snapshot`` was read after the claim: it has the last write of the previous owner."""

    run_id: str
    owner_id: str
    fence: int
    expires_at: datetime
    snapshot: RunSnapshot
    definition_digest: str | None
    """Equal for runs of the same definition, where the store can tell."""


class GivenLeases(Struct, frozen=True, kw_only=True):
    leases: tuple[GivenLease, ...]


class LeaseRenewal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    owner_id: OwnerId
    fence: Fence
    lease_seconds: LeaseSeconds


class HeldLease(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run_id: Annotated[str, Meta(max_length=128)]
    owner_id: OwnerId
    fence: Fence


class RenewalsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    leases: Annotated[tuple[HeldLease, ...], Meta(max_length=MOST_RENEWED)]
    lease_seconds: LeaseSeconds


class RenewalsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``wait``: seconds for which the answer may be held back while there is neither a cancel
    request nor a lost lease to report. All leases are renewed before and after."""

    wait: Wait = 0.0


class Renewals(Struct, frozen=True, kw_only=True):
    """One for each lease, in order. ``ok`` false: the run has another owner, or has ended."""

    renewals: tuple[Renewal, ...]


class ReleaseQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    owner_id: OwnerId
    fence: Fence
    update_id: RequestId | None = None


Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Topic = Annotated[str, Meta(pattern="^(queue|owner):", max_length=600)]


class Heartbeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """List the worker for ``seconds`` from now; for information only."""

    seconds: LeaseSeconds
    queues: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ("default",)
    concurrency: Count = 0
    running: Count = 0
    draining: bool = False
    details: dict[str, Any] = {}


class WakeupRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics are ``queue:NAME`` for runs that can be claimed, and ``owner:ID`` for cancel requests.
    ``after`` is that of the last answer: later news are answered at once. ``wait``: seconds for
    which the answer may be held back while there are none."""

    topics: Annotated[tuple[Topic, ...], Meta(min_length=1, max_length=1000)]
    after: Annotated[str, Meta(max_length=100)] | None = None
    wait: Wait = LONGEST_WAIT


class Wakeup(Struct, frozen=True, kw_only=True):
    """There may be news if ``after`` differs from the requested one. A hint only: poll now and then
    as well."""

    after: str


MOST_WRITES = 1000
MAX_WRITES_BYTES = 64 << 20
"""Of a request: a run with all its files, or an owner's update of many hosts."""


class Writes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most one for each run."""

    writes: Annotated[tuple[NewRun | Update, ...], Meta(max_length=MOST_WRITES)]


class WriteOutcome(Struct, frozen=True, kw_only=True):
    """Either a receipt or a problem."""

    receipt: Receipt | None = None
    problem: Problem | None = None


class WriteOutcomes(Struct, frozen=True, kw_only=True):
    """One for each write, in order; a refused one harms no other."""

    outcomes: tuple[WriteOutcome, ...]
