"""Birth and ownership of a run as pure decisions: create, claim, release, runnable.

A claim is the only thing that raises a worker's fence, and raising the fence is the only thing
that takes a run away from an owner. An expired lease by itself takes nothing: its owner may
still write until somebody claims.
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
_AT_BIRTH = (RunStatus.QUEUED, RunStatus.RUNNING)
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
    """Equal for runs of the same definition, where a store can tell: who has read it once need not
    ask for it again."""


class Renewal(Struct, frozen=True, gc=False, kw_only=True):
    """The answer for one lease. ``ok`` false: the run has another owner, or has ended."""

    run_id: str
    ok: bool
    busy: bool = False
    """Nobody else has it, but it was not renewed, for somebody was just writing the run: it ends
    when it would have. It is to be sent again, and not trusted for longer meanwhile."""
    expires_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    version: int | None = None


class Purpose(StrEnum):
    """Why a run is claimed decides which runs may be."""

    EXECUTE = "execute"
    RECONCILE = "reconcile"


Request = TypeVar("Request", "ClaimRequest", LeaseRequest)


class ClaimRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Ask for up to ``limit`` runs at once. ``claim_id`` as in ``LeaseRequest``.

    ``queues`` only matters for executing; a reconciler takes what it finds.
    ``dead_owners`` are owners this process has proven dead (same machine, same boot, their
    process gone): a lease of theirs counts as ended at once.
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
"""Seconds. A store that comes to a claim only so long after it was asked was away, or held up, and
with it everybody who wanted to renew a lease: then it takes no expired one, as if ``expired`` were
false. Their owners get the chance to come back first, and whoever claims next may have the rest."""
_LATE_FOR_ALL = 5.0


def late_after(seconds: float) -> float:
    """Where leases last for so long. Owners renew by thirds: nobody's lease ends in a sixth of its
    time, and a store that is slow all the time shall not keep the runs of the dead for ever."""
    return min(max(seconds / 6, LATE), _LATE_FOR_ALL)


def in_time(request: Request, waited: float) -> Request:
    """``request`` as it counts now, so long after its store was asked."""
    if waited <= late_after(request.seconds) or not request.expired:
        return request
    return replace(request, expired=False)


OLDEST_EVERY = 10
"""One claimed run in so many is the oldest one, whatever its priority: nothing starves."""


class LeaseToken(NamedTuple):
    """By which token a run was last claimed through a gateway, and under which fence."""

    fence: int
    token_id: str


def check_same_token(run: RunSnapshot, bound: LeaseToken | None, request: Request) -> None:
    """Of a claim that would renew what this owner holds. ``LeaseHeld`` if another token has it."""
    if request.token_id is not None and bound != LeaseToken(run.fence, request.token_id):
        raise LeaseHeld(run.run_id, owner_id=run.owner_id, expires_at=run.lease_expires_at)


class Claimed(NamedTuple):
    snapshot: RunSnapshot
    event: Event | None
    """``None``: this owner held it already and the claim only renews."""


def create(new: NewRun, at: datetime, now: datetime | None = None) -> RunSnapshot:
    """The run as it is born: version 1, times by the store's clock, counts made. ``now``: if its
    birth is dated later than that clock shows, which has been set back."""
    given = new.snapshot
    check_run_id(given.run_id)
    if not MIN_PRIORITY <= given.priority <= MAX_PRIORITY:
        raise StoreRejected(given.run_id, f"priority {given.priority} is not in -100…100")
    if given.status not in _AT_BIRTH:
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
    """Whatever its maker says, nothing has happened to it yet."""
    # Not together with what `create` sets: of more than fifteen keywords Python makes a dict, which
    # costs more than a second copy.
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
    """A planned step, or one that starts in the very commit that creates the run."""
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
    """Of what is born only what runs has a time of start."""
    running = [step for step in steps if step.started_at is not None]
    hosts = [host for step in running for host in step.hosts.values() if host.started_at]
    return Counts(
        steps={StepStatus.RUNNING: len(running)} if running else {},
        hosts={HostStatus.RUNNING: len(hosts)} if hosts else {},
        steps_total=len(steps),
        hosts_total=sum([len(step.hosts) for step in steps]),
    )


def check_repeated(run: RunSnapshot, first_update_id: str | None, new: NewRun) -> None:
    """``run`` is there already: may its creation be answered once more?

    ``RunExists`` unless this is the very write that made it, and ``LeaseLost`` if the run has
    moved on without its maker: an owner that was replaced must not hear "ok" and begin.
    """
    if first_update_id != new.update_id:
        raise RunExists(run.run_id)
    moved_on = run.fence != 1 or run.owner_id not in (None, new.lease and new.lease.owner_id)
    if new.lease is not None and moved_on:
        raise LeaseLost(run.run_id, fence=run.fence, owner_id=run.owner_id)


def already_retried(retry_of: str, active: str, status: str, unapproved: bool) -> AlreadyRetried:
    """For a second retry of a run, or of one of its retries, while one is queued or running: both
    would do what is left. Every store that keeps definitions refuses it."""
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
    """What is said of a run that gets an owner: of a ``former`` one it is taken over."""
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
    """What an owner that gives its run back says of it, alone or with its last changes."""
    return Event(type="lease.released", data={"owner_id": fencing.owner_id, "fence": fencing.fence})


def holds(run: RunSnapshot, fencing: Fencing) -> bool:
    """Whether this owner may still write output and renew; expiry alone takes nothing away."""
    return run.owner_id == fencing.owner_id and run.fence == fencing.fence


def present(run: RunSnapshot, *, lease_live: bool, expires_at: datetime | None) -> RunSnapshot:
    """The run as a reader sees it now: the lease is a fact of the moment, not of the record."""
    owner_lost = run.status == RunStatus.RUNNING and not lease_live
    if expires_at == run.lease_expires_at and owner_lost == run.owner_lost:
        return run
    return replace(run, lease_expires_at=expires_at, owner_lost=owner_lost)


# A queued run that nobody owns, taken and begun by one write.
#
# A claim says who executes a run, the first update what starts: each durable before anything
# starts, and nothing happens between them. So whoever has seen a run wait, and knows what of it
# would start, may say both at once, in one version; as ``create`` does for a run that is born with
# its owner.
#
# What was seen is proven by the base version: every claim, request and approval would have raised
# it. Nothing is concluded about an owner: a run that has one, however long silent, is not begun
# this way.


class WaitingRun(Struct, frozen=True, gc=False, kw_only=True):
    """A run as it was read: somebody else may have it by now."""

    snapshot: RunSnapshot
    definition_digest: str | None = None
    """As in ``ClaimedRun``."""


class Beginning(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Take the run as it was at ``base_version``, and change it as its owner under ``fence``."""

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
    """The journal says first whose it is, then what starts."""
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
    """For whoever keeps whole records; the errors are those of ``taken_by``."""
    taken = taken_by(run, beginning, at=at, applied_id=applied_id)
    if taken is None:
        return Applied(run, beginning.base_version + 1, None)
    return apply(*taken, at=at)


def taken_by(
    run: RunSnapshot, beginning: Beginning, *, at: datetime, applied_id: str | None = None
) -> tuple[RunSnapshot, Update] | None:
    """The run in its owner's hands, and what that owner then writes; ``None`` if it had begun
    before. ``applied_id`` as in ``Circumstances``. ``LeaseLost`` if it had begun and somebody else
    has the run by now; ``LeaseHeld`` if somebody was faster, ``VersionConflict`` if anything else
    has happened to it, ``NotRunnable`` if it cannot begin."""
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
        raise NotRunnable(run.run_id, f"not to be begun: it is {run.status}")
    taken = claim(run, fencing.owner_id, at=at, lease_live=False).snapshot
    return replace(taken, version=run.version, updated_at=run.updated_at), update


# Whether a store that answers late was away, or is always as slow as that.
#
# Of one that was away nobody could renew a lease: then expired ones are left to their owners once.
# One that is slow all the time still renews what it is asked to renew, and shall not keep the runs
# of the dead for ever.


_OFTEN = 3


class Pace:
    """Of one store, as one process sees it. A store is

    - *quick* at first, and again with every answer that is not late;
    - *away* with an answer that is later than it usually is, and with all late ones after that,
      until it is known to be slow: they may have been held up by the same thing;
    - *slow* after a stretch of late answers: several in a row, for as long as a lease, and none
      that was later than usual. Then what takes as long as usual counts as if it were in time.

    What is usual is the longest answer of the last whole stretch and of the one under way. So an
    outage is forgotten some time after, and what comes again and again is no outage.
    """

    def __init__(self) -> None:
        self._usual = 0.0
        """The longest answer of the last whole stretch. None was: it is not slow."""
        self._longest = 0.0
        """Of the stretch under way."""
        self._times = 0
        """Late in this stretch, each asked when the one counted before had been answered: those
        that waited at the same time waited for the same thing."""
        self._since = self._counted_at = 0.0

    def in_time(self, request: Request, asked_at: float, now: float) -> Request:
        """``request`` as it counts ``now``: it takes no expired lease if its store was away."""
        late, lease = late_after(request.seconds), request.seconds
        away = self.was_away(asked_at, now, late=late, lease=lease)
        return in_time(request, now - asked_at) if away else request

    def was_away(self, asked_at: float, now: float, *, late: float, lease: float) -> bool:
        """``late`` is what takes longer than that; a ``lease`` is how long it must have been so."""
        waited = now - asked_at
        if waited <= late:
            self._usual = self._longest = 0.0
            return False
        if waited - max(self._usual, self._longest) > late:
            self._usual = 0.0
            self._begin(waited, now)
            return True
        self._longest = max(self._longest, waited)
        if asked_at >= self._counted_at:
            self._times, self._counted_at = self._times + 1, now
        if self._times > _OFTEN and now - self._since >= lease:
            self._usual = self._longest
            self._begin(waited, now)
        return not self._usual

    def _begin(self, waited: float, now: float) -> None:
        """A stretch, with this answer."""
        self._longest, self._times = waited, 1
        self._since = self._counted_at = now
