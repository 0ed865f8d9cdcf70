"""Runs whose owner is gone are ended: as canceled if they were asked to stop, else as interrupted
unless they resume. Those that nobody approved in time are canceled.

*With leases*: claim first (the fence rises, a waking owner is refused), then end and release in one
update. A run whose owner renews cannot be claimed, hence never be hit. A lease of an owner that is
provably dead on this boot of this machine counts as ended at once; so does one of another boot, in
a store that can tell (see ``LeaseRequest``).

*Without leases* nobody can claim. A run is ended only if its owner is provably gone: its process on
this boot of this machine, or its OS lock (``LiveRuns``), or it carries this runner's name and the
application says that only one process has that name at a time. None of it counts while the owner's
process is seen to live: locks can be lost, and names be given twice. It is written under the dead
owner's own fence: whoever else might own it by then makes the write fail.
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
"""Few, however many runs are queued. (The status goes without saying, as with ``HELD``.)"""
_BATCH = 100
_CLAIM_SECONDS = 30.0
_TASKS_END = 15.0
"""Seconds that tasks of a dead process are waited for; longer ones keep their run for later."""
_LOOK_AGAIN = 0.05
_AT_WORK = (Presence.ALIVE, Presence.ENDING)


class EndedRuns(NamedTuple):
    """By their ids: those whose owner is gone, those that nobody approved in time, and those that
    were asked to stop by the time their owner was gone."""

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
    """``presence`` tells of an owner id what can be seen of its process. ``touch`` hears how claims
    went; ``None``: nobody judges others by it later."""

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
        self._told = told
        self._owner_id = owner_id
        self._new_id = new_id
        self._presence = presence
        self._runner_id = runner_id
        self._touch = touch
        self._approvals = Approvals(store, new_id, told)

    async def mark_at_start(self) -> None:
        """What a dead process left behind, before anything else is written. Only where the store
        itself can tell the dead from the living, or this runner has a name."""
        can_tell = isinstance(self._store, LeaseStore | LiveRuns)
        if can_tell or self._runner_id is not None:
            for line in told_of(await self.end_abandoned(), "process"):
                _log.warning(line)

    async def end_abandoned(self) -> EndedRuns:
        """Runs whose process is gone for certain, once what it had started is gone too."""
        await self.let_tasks_end()
        return await self.reconcile(ON_START, expired=lambda: False)

    async def reconcile(
        self, reason: str, *, expired: Callable[[], bool] = lambda: True
    ) -> EndedRuns:
        """``expired``, asked when it comes to it: false leaves leases alone that merely ran out,
        for a process that cannot know whether their owners only wait for the store to return."""
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
                seconds=_CLAIM_SECONDS,
                claim_id=self._new_id(),
                limit=_BATCH,
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
            if len(claimed) < _BATCH:
                break
        return ended

    async def _claim(
        self, store: LeaseStore, request: ClaimRequest
    ) -> tuple[list[ClaimedRun], bool]:
        """Also whether expired leases may still be claimed: not after an error, for then their
        owners may have met it too, and get the chance to come back first."""

        def be_careful(_: StoreUnavailable) -> None:
            nonlocal request
            request = replace(request, expired=False)

        def send() -> Awaitable[list[ClaimedRun]]:
            claim = store.claim_runs(request)
            return claim if self._touch is None else self._touch.asked(claim)

        claimed = await until_answered(send, failed=be_careful)
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
        if self._presence(owner_id) in _AT_WORK:
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
        """Of owners that are gone: whoever comes next must not find them still running."""
        owners = await self._owners()
        for _ in range(int(_TASKS_END / _LOOK_AGAIN)):
            if not any(self._presence(owner) is Presence.ENDING for owner in owners):
                return
            await pause(_LOOK_AGAIN)

    async def _owners(self) -> set[str]:
        """All others who have runs that nobody would go on with without them."""
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
        return await end_run(self._store, self._new_id, self._told, run, fencing, change)


def told_of(ended: EndedRuns, who: str) -> Iterator[str]:
    """A line for the log about those whose ``who`` is gone, for each way in which they ended."""
    for status, run_ids in (("interrupted", ended.interrupted), ("canceled", ended.canceled)):
        if run_ids:
            runs, whose = ("run", "its") if len(run_ids) == 1 else ("runs", "their")
            of = f"{len(run_ids)} {runs} as {status}: {whose} {who} is gone"
            yield f"marked {of} ({listed(run_ids)})"


def _process_of(owner_id: str) -> str:
    """An owner id is that of a process, and something unique behind the last slash."""
    return owner_id.rpartition("/")[0]
