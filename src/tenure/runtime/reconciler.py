"""Ends runs whose owner is gone: as canceled if a cancel was requested, else as interrupted unless
they resume. Runs that were not approved in time are canceled. Taking a run over, to continue it, is
in ``runtime.resume``.

*With leases* the reconciler claims a run first (the fence rises, a waking owner is refused), then
ends and releases it in one update. A run whose owner renews cannot be claimed. The lease of an
owner that is known to be dead on this boot of this machine counts as expired at once; so does one
of another boot, in a store that can tell (see ``LeaseRequest``).

*Without leases* there are no claims. A run is ended only if its owner is known to be gone: its
process on this boot of this machine, or its OS lock (``LiveRuns``), or it has this runner's name
and the application guarantees that only one process has that name at a time. None of this counts
while the owner's process is alive: locks can be lost, and names be given twice. The end is written
under the dead owner's fence, and refused if the run has another owner by then.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from tenure.aio import pause, until_answered
from tenure.model.errors import StoreUnavailable
from tenure.model.leases import ClaimedRun, ClaimRequest, Purpose
from tenure.model.query import RunFilter
from tenure.model.snapshot import ErrorInfo, RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.model.update import Fencing, RunChange
from tenure.ports.leases import LeaseStore, LiveRuns, Presence
from tenure.ports.store import RunStateStore
from tenure.runtime.callbacks import OnCommitted
from tenure.runtime.group_commit import InTouch
from tenure.runtime.operators import Approvals, RemoteOperations
from tenure.runtime.owners import HELD, all_runs, owned_runs
from tenure.runtime.writer import end_run
from tenure.workflow.wording import listed

_log = logging.getLogger("tenure.runtime")

ON_START = "the process that ran it is gone"

_UNAPPROVED = RunFilter(unapproved=True, statuses=frozenset({RunStatus.QUEUED}))
"""(The status is implied, as with ``HELD``.)"""
_CLAIM_LIMIT = 100
_CLAIM_DURATION_S = 30.0
_TASKS_END_TIMEOUT_S = 15.0
"""For tasks of dead processes to end; runs of longer ones are ended by a later reconcile."""
_POLL_INTERVAL_S = 0.05
_STILL_ALIVE = (Presence.ALIVE, Presence.ENDING)


class EndedRuns(NamedTuple):
    """Ids of the runs ended: ``interrupted`` and ``canceled`` (a cancel was requested) ones whose
    owner was gone, and ``expired`` ones that were not approved in time."""

    interrupted: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    canceled: tuple[str, ...] = ()

    @property
    def abandoned(self) -> int:
        """How many had lost their owner."""
        return len(self.interrupted) + len(self.canceled)

    def without(self, run_id: str | None) -> EndedRuns:
        return EndedRuns(*(tuple(each for each in of if each != run_id) for of in self))


class Reconciler:
    """``presence`` tells whether the process of an owner id lives. ``touch`` notes how claims went.
    ``told`` is called with each write."""

    def __init__(
        self,
        store: RunStateStore,
        owner_id: str,
        new_id: Callable[[], str],
        presence: Callable[[str], Presence],
        runner_id: str | None = None,
        told: OnCommitted | None = None,
        touch: InTouch | None = None,
    ) -> None:
        self._store = store
        self._on_committed = told
        self._owner_id = owner_id
        self._new_id = new_id
        self._presence = presence
        self._runner_id = runner_id
        self._touch = touch
        self._approvals = Approvals(store, new_id, told)

    async def mark_at_start(self) -> None:
        """End what dead processes left, before anything else is written. Only where the store can
        tell dead owners from live ones, or this runner has a name."""
        can_tell = isinstance(self._store, LeaseStore | LiveRuns)
        if can_tell or self._runner_id is not None:
            for line in told_of(await self.end_abandoned(), "process"):
                _log.warning(line)

    async def end_abandoned(self) -> EndedRuns:
        """End runs whose process is known to be gone, after its tasks have ended too."""
        await self.let_tasks_end()
        return await self.reconcile(ON_START, expired=lambda: False)

    async def reconcile(
        self, reason: str, *, expired: Callable[[], bool] = lambda: True
    ) -> EndedRuns:
        """``expired``, called when needed: whether to take leases that merely ran out. False for a
        process that cannot know whether their owners only wait for the store to return."""
        remote = self._store
        if isinstance(remote, RemoteOperations):
            return await until_answered(lambda: remote.end_abandoned_runs(reason))
        unapproved = await self._expire()
        if isinstance(self._store, LeaseStore):
            ended = await self._with_leases(self._store, reason, expired)
        else:
            ended = await self._without_leases(reason)
        return EndedRuns(
            interrupted=tuple(run.run_id for run in ended if run.cancel_requested_at is None),
            expired=tuple(unapproved),
            canceled=tuple(run.run_id for run in ended if run.cancel_requested_at is not None),
        )

    async def _expire(self) -> list[str]:
        return [
            run.run_id
            async for run in all_runs(self._store, _UNAPPROVED)
            if await self._approvals.expire_if_overdue(run)
        ]

    async def _with_leases(
        self, store: LeaseStore, reason: str, may_take_expired: Callable[[], bool]
    ) -> list[RunSnapshot]:
        owners = await self._owners()
        dead = frozenset(owner for owner in owners if self._is_dead(owner))
        expired = may_take_expired()
        ended: list[RunSnapshot] = []
        while owners or expired:
            request = ClaimRequest(
                owner_id=self._owner_id,
                seconds=_CLAIM_DURATION_S,
                claim_id=self._new_id(),
                limit=_CLAIM_LIMIT,
                purpose=Purpose.RECONCILE,
                expired=expired,
                dead_owners=dead,
            )
            claimed, expired = await self._claim(store, request)
            ended += [
                claim.snapshot
                for claim in claimed
                if await self._end(claim.snapshot, claim.lease.fencing, reason)
            ]
            if len(claimed) < _CLAIM_LIMIT:
                break
        return ended

    async def _claim(
        self, store: LeaseStore, request: ClaimRequest
    ) -> tuple[list[ClaimedRun], bool]:
        """Also whether expired leases may still be claimed: not after an error, which their owners
        may have met too; they get the chance to renew first."""

        def leave_expired(_: StoreUnavailable) -> None:
            nonlocal request
            request = replace(request, expired=False)

        def send() -> Awaitable[list[ClaimedRun]]:
            claim = store.claim_runs(request)
            return claim if self._touch is None else self._touch.asked(claim)

        claimed = await until_answered(send, failed=leave_expired)
        return claimed, request.expired

    async def _without_leases(self, reason: str) -> list[RunSnapshot]:
        ended: list[RunSnapshot] = []
        async for run in all_runs(self._store, HELD):
            owner_id = run.owner_id
            resumes = run.recovery is Recovery.RESUME and run.cancel_requested_at is None
            if owner_id is None or resumes:
                continue
            if not await self._gone(run.run_id, owner_id):
                continue
            snapshot = await until_answered(partial(self._store.get_run, run.run_id))
            fencing = Fencing(owner_id, run.fence)
            if snapshot.owner_id == owner_id and await self._end(snapshot, fencing, reason):
                ended.append(snapshot)
        return ended

    async def _gone(self, run_id: str, owner_id: str) -> bool:
        if owner_id == self._owner_id:
            return False
        if self._presence(owner_id) in _STILL_ALIVE:
            return False
        if isinstance(self._store, LiveRuns):
            return not await until_answered(partial(self._store.is_live, run_id))
        if _process_of(owner_id) == _process_of(self._owner_id):
            return False  # another runner of this very process
        if self._runner_id is not None and owner_id.endswith(f"@{self._runner_id}"):
            return True
        return self._is_dead(owner_id)

    def _is_dead(self, owner_id: str) -> bool:
        return self._presence(owner_id) is Presence.GONE

    async def let_tasks_end(self) -> None:
        """Wait until the tasks of dead owners have ended, at most ``_TASKS_END_TIMEOUT_S``."""
        owners = await self._owners()
        for _ in range(int(_TASKS_END_TIMEOUT_S / _POLL_INTERVAL_S)):
            if not any(self._presence(owner) is Presence.ENDING for owner in owners):
                return
            await pause(_POLL_INTERVAL_S)

    async def _owners(self) -> set[str]:
        """Other owners with runs that no worker would continue."""
        owned = await owned_runs(self._store)
        return {
            each.owner_id
            for each in owned
            if each.owner_id not in (None, self._owner_id)
            and (each.recovery is Recovery.INTERRUPT or each.canceling)
        }

    async def _end(self, run: RunSnapshot, fencing: Fencing, reason: str) -> bool:
        if run.cancel_requested_at is not None:
            change = RunChange(
                status=RunStatus.CANCELED,
                message=run.cancel_reason or "canceled; its owner was gone",
            )
        else:
            error = ErrorInfo(kind="interrupted", message=reason)
            change = RunChange(
                status=RunStatus.INTERRUPTED,
                message=reason,
                interrupted_reason=reason,
                error=error,
                last_error=error,
            )
        return await end_run(self._store, self._new_id, self._on_committed, run, fencing, change)


def told_of(ended: EndedRuns, holder: str) -> Iterator[str]:
    """Log lines about the runs ended; ``holder`` ("owner", "process") is what was gone."""
    for status, run_ids in (("interrupted", ended.interrupted), ("canceled", ended.canceled)):
        if run_ids:
            runs, whose = ("run", "its") if len(run_ids) == 1 else ("runs", "their")
            of = f"{len(run_ids)} {runs} as {status}: {whose} {holder} is gone"
            yield f"marked {of} ({listed(run_ids)})"


def _process_of(owner_id: str) -> str:
    """The process part of an owner id: all before the last slash."""
    return owner_id.rpartition("/")[0]
