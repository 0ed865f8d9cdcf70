"""Ownership of runs: claimed, renewed, given back.

``claim_id`` and ``update_id`` name a request: who got no answer sends it again under the same name
and gets what the first one got. Left out, a repetition is a request of its own.
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
"""Seconds: less than what stands between the two of them lets a silent connection live."""
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]


class LeaseClaim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``expired`` false takes no expired lease over: its owner may only be waiting to come back."""

    owner_id: OwnerId
    lease_seconds: LeaseSeconds
    claim_id: RequestId | None = None
    purpose: Purpose = Purpose.EXECUTE
    expired: bool = True


class Claims(LeaseClaim, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Up to ``limit`` runs of these queues. ``dead_owners`` are known to be gone for certain: their
    leases count as ended."""

    limit: Annotated[int, Meta(ge=1, le=MOST_CLAIMED)] = 1
    queues: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ("default",)
    dead_owners: Annotated[tuple[OwnerId, ...], Meta(max_length=10_000)] = ()


class GivenLease(Struct, frozen=True, kw_only=True):
    """``snapshot`` was read after the claim: it has the last word of the owner before."""

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
    """``wait``: seconds that the answer may be held back while there is nothing to tell, neither a
    cancel request nor a lost lease. All leases are renewed before and after."""

    wait: Wait = 0.0


class Renewals(Struct, frozen=True, kw_only=True):
    """One for each lease, in order. ``ok`` false: the run has another owner, or has ended."""

    renewals: tuple[Renewal, ...]


class ReleaseQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    owner_id: OwnerId
    fence: Fence
    update_id: RequestId | None = None


# Being there, and being told that there may be something to do.


Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Topic = Annotated[str, Meta(pattern="^(queue|owner):", max_length=600)]


class Heartbeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Be listed for ``seconds`` from now; for people only."""

    seconds: LeaseSeconds
    queues: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ("default",)
    concurrency: Count = 0
    running: Count = 0
    draining: bool = False
    details: dict[str, Any] = {}


class WakeupRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics are ``queue:NAME`` for runs that can be claimed, and ``owner:ID`` for cancel requests.
    ``after`` is what the last answer said: news since then are told at once. ``wait``: seconds that
    the answer may be held back while there are none."""

    topics: Annotated[tuple[Topic, ...], Meta(min_length=1, max_length=1000)]
    after: Annotated[str, Meta(max_length=100)] | None = None
    wait: Wait = LONGEST_WAIT


class Wakeup(Struct, frozen=True, kw_only=True):
    """There may be news if ``after`` is another than was asked with. A hint: look for yourself, and
    also now and then without it."""

    after: str


# Creations and updates of runs, as the store takes them.


MOST_WRITES = 1000
MAX_WRITES_BYTES = 64 << 20
"""Of a request: a run with all files it may have, or what its owner has to say of many hosts."""


class Writes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most one for each run."""

    writes: Annotated[tuple[NewRun | Update, ...], Meta(max_length=MOST_WRITES)]


class WriteOutcome(Struct, frozen=True, kw_only=True):
    """One of the two."""

    receipt: Receipt | None = None
    problem: Problem | None = None


class WriteOutcomes(Struct, frozen=True, kw_only=True):
    """One for each write, in order; one that was refused harmed no other."""

    outcomes: tuple[WriteOutcome, ...]
