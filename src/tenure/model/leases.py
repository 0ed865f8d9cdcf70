"""Creation and ownership of a run as pure decisions: create, claim, begin, release, runnable.

Only a claim raises a run's fence, and only a raised fence takes a run away from its owner. An
expired lease by itself takes nothing: its owner may write until the run is claimed. Whether a lease
has expired is decided by the store's clock (``stores.lease_clock``, PostgreSQL's ``queries.sql``);
here it arrives as ``lease_live``. ``Pace`` judges whether a store that answers late was away.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.codec import why_not_kept
from tenure.model.compose import address, describe
from tenure.model.decide import (
    Applied,
    Circumstances,
    apply,
    born_approval,
    check_base,
    check_deliveries,
    moved_forward,
    waits_for_approval,
)
from tenure.model.errors import (
    AlreadyRetried,
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    RunExists,
    StoreRejected,
)
from tenure.model.ids import check_run_id
from tenure.model.snapshot import Counts, HostState, RunSnapshot, RunSummary, StepState
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.model.update import (
    Changes,
    Effect,
    Event,
    Fencing,
    LeaseRequest,
    NewRun,
    Update,
    check_lease_seconds,
)

MIN_PRIORITY, MAX_PRIORITY = -100, 100
_INITIAL_STATUSES = (RunStatus.QUEUED, RunStatus.RUNNING)
_PENDING_HOST = HostState()


class Lease(Struct, frozen=True, gc=False, kw_only=True):
    """Exclusive right of ``owner_id`` to drive ``run_id``, until ``expires_at`` at least."""

    run_id: str
    owner_id: str
    fence: int
    expires_at: datetime

    @property
    def fencing(self) -> Fencing:
        return Fencing(self.owner_id, self.fence)


class ClaimedRun(Struct, frozen=True, gc=False, kw_only=True):
    """A lease and the record as read after the claim had committed."""

    lease: Lease
    snapshot: RunSnapshot
    definition_digest: str | None = None
    """Equal for runs of the same definition, where a store can tell: a definition that was read
    once need not be read again."""


class Renewal(Struct, frozen=True, gc=False, kw_only=True):
    """The answer for one lease. ``ok`` is false if the run has another owner, or has ended."""

    run_id: str
    ok: bool
    busy: bool = False
    """Not renewed because another process was writing the run; it has no other owner. The lease
    ends when it would have: send the renewal again, and do not trust it for longer meanwhile."""
    expires_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    version: int | None = None


class Purpose(StrEnum):
    """Why a run is claimed; that decides which runs may be."""

    EXECUTE = "execute"
    RECONCILE = "reconcile"


Request = TypeVar("Request", "ClaimRequest", LeaseRequest)


class ClaimRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Ask for up to ``limit`` runs at once. ``claim_id`` as in ``LeaseRequest``.

    ``queues`` only matters for executing; a reconciler takes runs of all queues.
    ``dead_owners`` are owners that this process has proven dead (same machine, same boot, process
    gone): their leases count as expired at once.
    ``expired`` and ``token_id`` as in ``LeaseRequest``.
    """

    owner_id: str
    seconds: float
    claim_id: str
    limit: int = 1
    queues: tuple[str, ...] = ("default",)
    purpose: Purpose = Purpose.EXECUTE
    expired: bool = True
    dead_owners: frozenset[str] = frozenset()
    token_id: str | None = None

    def __post_init__(self) -> None:
        check_lease_seconds(self.seconds)

    @property
    def lease(self) -> LeaseRequest:
        """As it is asked for each of the runs that were found."""
        return LeaseRequest(
            owner_id=self.owner_id,
            seconds=self.seconds,
            claim_id=self.claim_id,
            token_id=self.token_id,
        )


LATE = 1.0
"""Seconds. A claim that a store starts so long after it was sent is late: the store was away, or
held up, and so were all renewals. A late claim takes no expired lease (as if ``expired`` were
false), so that owners can renew first; the next claim may take what is left."""
_MAX_LATE_S = 5.0


def late_after(seconds: float) -> float:
    """Seconds after which a claim counts as late, for leases of so many ``seconds``. Owners renew
    by thirds, so no lease ends within a sixth of its time; the upper bound keeps a store that is
    always slow from holding the runs of dead owners for ever."""
    return min(max(seconds / 6, LATE), _MAX_LATE_S)


def in_time(request: Request, waited: float) -> Request:
    """``request``, without expired leases if it waited too long (``late_after``)."""
    if waited <= late_after(request.seconds) or not request.expired:
        return request
    return replace(request, expired=False)


OLDEST_EVERY = 10
"""One in so many claimed runs is the oldest, whatever its priority, so that none starves."""


class LeaseToken(NamedTuple):
    """By which token a run was last claimed through a gateway, and under which fence."""

    fence: int
    token_id: str


def check_same_token(run: RunSnapshot, bound: LeaseToken | None, request: Request) -> None:
    """Of a claim that would renew what this owner holds. ``LeaseHeld`` if another token has it."""
    if request.token_id is not None and bound != LeaseToken(run.fence, request.token_id):
        raise LeaseHeld(run.run_id, owner_id=run.owner_id, expires_at=run.lease_expires_at)


class Claimed(NamedTuple):
    """A run after a claim or release, and the event to write."""

    snapshot: RunSnapshot
    event: Event | None
    """``None``: nothing to write, the claim only renews or the run was released before."""


def create(new: NewRun, at: datetime, now: datetime | None = None) -> RunSnapshot:
    """The run as it is created: version 1, times by the store's clock, counts made. ``now`` differs
    from ``at`` if the clock has been set back and the creation is dated later than it shows."""
    given = new.snapshot
    check_run_id(given.run_id)
    if not MIN_PRIORITY <= given.priority <= MAX_PRIORITY:
        raise StoreRejected(given.run_id, f"priority {given.priority} is not in -100…100")
    if given.status not in _INITIAL_STATUSES:
        raise StoreRejected(given.run_id, f"cannot be born {given.status}")
    if not given.queue:
        raise StoreRejected(given.run_id, "needs a queue with a name")
    for moment in (given.run_after, given.approval.expires_at):
        wrong = None if moment is None else why_not_kept(moment)
        if wrong is not None:
            raise StoreRejected(given.run_id, wrong)
    if given.callbacks and len({each.name for each in given.callbacks}) != len(given.callbacks):
        raise StoreRejected(given.run_id, "two callback targets have the same name")
    if new.deliveries:
        check_deliveries(given, new.events, new.deliveries)
    steps = tuple([_born_step(given, i, step, at) for i, step in enumerate(given.steps)])
    return replace(
        _without_past(given),
        version=1,
        fence=1 if new.lease else 0,
        owner_id=new.lease.owner_id if new.lease else None,
        created_at=at,
        updated_at=at,
        started_at=at if given.status == RunStatus.RUNNING else None,
        approval=born_approval(new, at, now or at),
        steps=steps,
        counts=_count(steps),
    )


def _without_past(run: RunSnapshot) -> RunSnapshot:
    """Reset everything that can only happen after creation, whatever the caller sent."""
    # Separate from what `create` sets: with more than fifteen keywords Python builds a dict,
    # which costs more than a second copy.
    return replace(
        run,
        owner_lost=False,
        lease_expires_at=None,
        takeovers=0,
        takeovers_without_progress=0,
        finished_at=None,
        cancel_requested_at=None,
        cancel_reason=None,
        error=None,
        last_error=None,
        interrupted_reason=None,
        unconfirmed_hosts=(),
        callback_error=None,
        annotations=(),
    )


def _born_step(run: RunSnapshot, index: int, step: StepState, at: datetime) -> StepState:
    """A planned step, or one that starts in the commit that creates the run."""
    if step.index != index:
        raise StoreRejected(run.run_id, f"step {index} carries index {step.index}")
    running = step.status != StepStatus.PENDING
    if running and step.status != StepStatus.RUNNING:
        raise StoreRejected(run.run_id, f"step {index} cannot be born {step.status}")
    if running and run.status != RunStatus.RUNNING:
        raise StoreRejected(run.run_id, f"step {index} is running in a run that is not")
    hosts = step.hosts
    if running or hosts != dict.fromkeys(hosts, _PENDING_HOST):
        hosts = {name: _born_host(run.run_id, name, hosts[name], running, at) for name in hosts}
    return replace(step, started_at=at if running else None, finished_at=None, hosts=hosts)


def _born_host(
    run_id: str, name: str, host: HostState, step_running: bool, at: datetime
) -> HostState:
    if host.status is HostStatus.PENDING:
        return _PENDING_HOST
    if host.status != HostStatus.RUNNING or not step_running:
        raise StoreRejected(run_id, f"host {name!r} cannot be born {host.status}")
    return replace(host, started_at=at, finished_at=None, items=())


def _count(steps: tuple[StepState, ...]) -> Counts:
    """At creation only running steps and hosts have a start time."""
    running = [step for step in steps if step.started_at is not None]
    hosts = [host for step in running for host in step.hosts.values() if host.started_at]
    return Counts(
        steps={StepStatus.RUNNING: len(running)} if running else {},
        hosts={HostStatus.RUNNING: len(hosts)} if hosts else {},
        steps_total=len(steps),
        hosts_total=sum([len(step.hosts) for step in steps]),
    )


def check_repeated(run: RunSnapshot, first_update_id: str | None, new: NewRun) -> None:
    """The run exists: may its creation be answered once more?

    ``RunExists`` unless this is the write that created it, and ``LeaseLost`` if the run has had
    another owner since: a replaced owner must not get "ok" and begin.
    """
    if first_update_id != new.update_id:
        raise RunExists(run.run_id)
    moved_on = run.fence != 1 or run.owner_id not in (None, new.lease and new.lease.owner_id)
    if new.lease is not None and moved_on:
        raise LeaseLost(run.run_id, fence=run.fence, owner_id=run.owner_id)


def already_retried(retry_of: str, active: str, status: str, unapproved: bool) -> AlreadyRetried:
    """The error for a second retry of a run, or of one of its retries, while one is queued or
    running: both would do the remaining work. Every store that keeps definitions refuses it."""
    if unapproved:
        todo = f"approve it (tenure approve {active}) or cancel it (tenure cancel {active})"
    else:
        todo = f"wait for it (tenure watch {active}) or end it (tenure cancel {active})"
    return AlreadyRetried(
        retry_of, f"{active} retries it and is {status}: {todo}, then retry {active}"
    )


def why_not_runnable(
    run: RunSummary, at: datetime, purpose: Purpose = Purpose.EXECUTE
) -> str | None:
    """Why this run may not be claimed, lease aside; ``None`` if it may."""
    if run.ended:
        return f"it ended as {run.status}"
    if purpose is Purpose.RECONCILE:
        if run.cancel_requested_at is not None:
            return None
        if run.recovery is not Recovery.INTERRUPT:
            return "it resumes; a worker will take it over"
        if run.owner_id is None and run.status == RunStatus.QUEUED:
            return "it waits for its first owner"
        return None
    if run.status == RunStatus.RUNNING and run.recovery is not Recovery.RESUME:
        return "its owner is gone and it does not resume; reconcile will mark it interrupted"
    if waits_for_approval(run):
        return "it waits for approval"
    if run.run_after is not None and run.run_after > at:
        return f"it waits until {run.run_after.isoformat()}"
    return None


def claim(
    run: RunSnapshot,
    owner_id: str,
    *,
    at: datetime,
    lease_live: bool,
    expires_at: datetime | None = None,
    purpose: Purpose = Purpose.EXECUTE,
) -> Claimed:
    """Give the run to ``owner_id``: fence and version rise.

    Only an expired lease makes it a takeover; a released run is simply picked up.
    """
    if lease_live:
        if run.owner_id == owner_id:
            return Claimed(run, None)
        raise LeaseHeld(run.run_id, owner_id=run.owner_id, expires_at=expires_at)
    reason = why_not_runnable(run, at, purpose)
    if reason is not None:
        raise NotRunnable(run.run_id, f"not runnable: {reason}")
    takeover = run.owner_id is not None
    fence = run.fence + 1
    event = claimed(owner_id, fence, purpose, run.owner_id)
    snapshot = replace(
        run,
        version=run.version + 1,
        fence=fence,
        owner_id=owner_id,
        takeovers=run.takeovers + takeover,
        takeovers_without_progress=run.takeovers_without_progress + takeover,
        updated_at=moved_forward(run, at),
    )
    return Claimed(snapshot, event)


def claimed(owner_id: str, fence: int, purpose: Purpose, former: str | None = None) -> Event:
    """The event of a claim; with a ``former`` owner, of a takeover."""
    said = {"owner_id": owner_id, "fence": fence, "purpose": purpose}
    if former is None:
        return Event(type="lease.claimed", data=said)
    return Event(type="lease.taken_over", data={**said, "from": former})


def release(run: RunSnapshot, fencing: Fencing, at: datetime) -> Claimed:
    """Give the run back, status untouched: an unfinished ``resume`` run is runnable at once.

    Repeating it, or releasing a run that this owner has ended, changes nothing.
    """
    if fencing.fence != run.fence or (run.owner_id or fencing.owner_id) != fencing.owner_id:
        raise LeaseLost(run.run_id, fence=run.fence, owner_id=run.owner_id)
    if run.owner_id is None:
        return Claimed(run, None)
    event = released(fencing)
    snapshot = replace(
        run,
        version=run.version + 1,
        owner_id=None,
        updated_at=moved_forward(run, at),
    )
    return Claimed(snapshot, event)


def released(fencing: Fencing) -> Event:
    """The event of a release."""
    return Event(type="lease.released", data={"owner_id": fencing.owner_id, "fence": fencing.fence})


def holds(run: RunSnapshot, fencing: Fencing) -> bool:
    """Whether this owner may still write output and renew; expiry alone takes nothing away."""
    return run.owner_id == fencing.owner_id and run.fence == fencing.fence


def present(run: RunSnapshot, *, lease_live: bool, expires_at: datetime | None) -> RunSnapshot:
    """The run as read now: whether the lease lives is not part of the record."""
    owner_lost = run.status == RunStatus.RUNNING and not lease_live
    if expires_at == run.lease_expires_at and owner_lost == run.owner_lost:
        return run
    return replace(run, lease_expires_at=expires_at, owner_lost=owner_lost)


# Beginning: a queued run without an owner is claimed and begun in one write.
#
# A claim says which owner executes a run, the first update what starts; nothing happens between
# them. A worker that has read a waiting run and knows what would start may write both at once, in
# one version, as ``create`` does for a run created with its owner.
#
# The base version proves that the run is as it was read: every claim, request and approval would
# have raised it. A run with an owner, however long silent, is never begun this way.


class WaitingRun(Struct, frozen=True, gc=False, kw_only=True):
    """A run as it was read; it may have an owner by now."""

    snapshot: RunSnapshot
    definition_digest: str | None = None
    """As in ``ClaimedRun``."""


class Beginning(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Claim the run as it was at ``base_version``, and update it as its owner under ``fence``."""

    run_id: str
    update_id: str
    base_version: int
    fence: int
    lease: LeaseRequest
    effect: Effect = Effect()

    @property
    def fencing(self) -> Fencing:
        return Fencing(self.lease.owner_id, self.fence)


def beginning_of(
    run: RunSnapshot,
    changes: Changes,
    lease: LeaseRequest,
    update_id: str,
    delivery_ids: Iterator[str],
) -> Beginning:
    """The journal has the claim first, then what starts."""
    fence = run.fence + 1
    taken = claimed(lease.owner_id, fence, Purpose.EXECUTE)
    events = (taken, *describe(run, changes))
    deliveries = address(run.callbacks, events, delivery_ids)
    return Beginning(
        run_id=run.run_id,
        update_id=update_id,
        base_version=run.version,
        fence=fence,
        lease=lease,
        effect=Effect(changes=changes, events=events, deliveries=deliveries),
    )


def begin(
    run: RunSnapshot, beginning: Beginning, *, at: datetime, applied_id: str | None = None
) -> Applied:
    """For stores that keep whole records; the errors are those of ``taken_by``."""
    taken = taken_by(run, beginning, at=at, applied_id=applied_id)
    if taken is None:
        return Applied(run, beginning.base_version + 1, None)
    return apply(*taken, at=at)


def taken_by(
    run: RunSnapshot, beginning: Beginning, *, at: datetime, applied_id: str | None = None
) -> tuple[RunSnapshot, Update] | None:
    """The claimed run and the owner's first update; ``None`` if it had been applied before.

    ``applied_id`` as in ``Circumstances``. ``LeaseLost`` if it was applied and the run has another
    owner by now; ``LeaseHeld`` if the run has an owner, ``VersionConflict`` if anything else has
    happened to it, ``NotRunnable`` if it cannot begin.
    """
    fencing = beginning.fencing
    update = Update(
        run_id=run.run_id,
        update_id=beginning.update_id,
        base_version=beginning.base_version,
        lease=fencing,
        effect=beginning.effect,
    )
    if run.version > beginning.base_version and applied_id == beginning.update_id:
        if fencing != Fencing(run.owner_id or "", run.fence):
            raise LeaseLost(run.run_id, fence=run.fence, owner_id=run.owner_id)
        return None
    if run.owner_id is not None:
        raise LeaseHeld(run.run_id, owner_id=run.owner_id, expires_at=None)
    check_base(run, update, beginning.effect, Circumstances())
    if run.status is not RunStatus.QUEUED:
        raise NotRunnable(run.run_id, f"cannot begin: it is {run.status}")
    taken = claim(run, fencing.owner_id, at=at, lease_live=False).snapshot
    return replace(taken, version=run.version, updated_at=run.updated_at), update


# Whether a store that answers late was away.

_MIN_LATE_ANSWERS = 3


class LateAnswers:
    """Whether one store that answers late was away, or is always slow, as one process sees it.

    While a store is away no lease can be renewed, so after it expired leases are left to their
    owners once. A store that is always slow still renews leases, and must not keep the runs of dead
    owners for ever. A store is

    - *quick* at first, and again after every answer in time;
    - *away* after an answer later than usual, and after all late ones that follow, until it is
      known to be slow: the same outage may have delayed them;
    - *slow* after a stretch of late answers: several in a row, over the time of a lease, and none
      later than usual. Then an answer that takes as long as usual counts as in time.

    Usual is the longest answer of the last complete stretch and of the current one. So an outage is
    forgotten after a while, and delays that repeat are no outage.
    """

    def __init__(self) -> None:
        self._usual_s = 0.0
        """Longest answer of the last complete stretch, in seconds; 0: the store is not slow."""
        self._longest_s = 0.0
        """Longest answer of the current stretch, in seconds."""
        self._late_answers = 0
        """Late answers in this stretch, each requested after the previous one had come: requests
        that waited together were delayed by the same thing."""
        self._since = self._counted_at = 0.0

    def in_time(self, request: Request, asked_at: float, now: float) -> Request:
        """``request`` as it counts ``now``: without expired leases if the store was away."""
        late, lease = late_after(request.seconds), request.seconds
        away = self.was_away(asked_at, now, late=late, lease=lease)
        return in_time(request, now - asked_at) if away else request

    def was_away(self, asked_at: float, now: float, *, late: float, lease: float) -> bool:
        """Answers after ``late`` seconds are late; a stretch must last for ``lease`` seconds."""
        waited = now - asked_at
        if waited <= late:
            self._usual_s = self._longest_s = 0.0
            return False
        if waited - max(self._usual_s, self._longest_s) > late:
            self._usual_s = 0.0
            self._begin(waited, now)
            return True
        self._longest_s = max(self._longest_s, waited)
        if asked_at >= self._counted_at:
            self._late_answers, self._counted_at = self._late_answers + 1, now
        if self._late_answers > _MIN_LATE_ANSWERS and now - self._since >= lease:
            self._usual_s = self._longest_s
            self._begin(waited, now)
        return not self._usual_s

    def _begin(self, waited: float, now: float) -> None:
        """Begin a stretch with this answer."""
        self._longest_s, self._late_answers = waited, 1
        self._since = self._counted_at = now
