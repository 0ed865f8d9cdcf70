"""Writes one run to the store as its owner: one durable update at a time, in order.

What a write may raise, and what the tracker then does:

======================  ========================================================================
``StoreUnavailable``    the outcome is unknown: the same write again under the same ``update_id``,
                        after a growing pause; nothing else of this run is written meanwhile
                        (creating a run is given up after a while)
``VersionConflict``     an operator wrote (cancel, approval, annotation); both writes commute: the
                        same changes on the newer version
``LeaseLost``           another owner has the run: raised, never retried
anything else           the store refuses the changes: raised; the engine ends the run
======================  ========================================================================

The answer to a write says whether a cancel was requested.

*An owner that no longer trusts its lease* writes results of its tasks and no starts. If an update
with both was sent before and not answered, it is unknown whether it was applied:

- the results alone are sent on the same version. If accepted, the earlier update can no longer be
  applied, even if it is still on its way: its version is outdated;
- if refused for the version, the earlier update is sent again unchanged. The store recognises it if
  it was applied; else it is refused for its version too, and the results follow on the newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from tenure.aio import ENDLESS, PATIENCE, bear, until_answered
from tenure.model.compose import effect_of, new_run
from tenure.model.errors import Refused, StoreUnavailable, VersionConflict
from tenure.model.leases import Beginning, ClaimedRun, Lease, beginning_of, released
from tenure.model.snapshot import HostState, RunSnapshot
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import (
    NO_RUN_CHANGE,
    Changes,
    Event,
    Fencing,
    HostChange,
    LeaseRequest,
    NewDelivery,
    Receipt,
    RunChange,
    StepChange,
    Update,
    Write,
)
from tenure.ports.store import RunStateStore
from tenure.runtime.callbacks import OnCommitted
from tenure.runtime.leases import HeldLease
from tenure.runtime.recorders import RecorderQueue

_NOTHING = StepChange()


def without_starts(changes: Changes) -> Changes:
    """What an owner that no longer trusts its lease may write: results, which stay true under the
    next owner, and no starts, since nothing will start here. ``changes`` itself if it has none."""
    steps = {index: _ended(change) for index, change in changes.steps.items()}
    if steps == changes.steps:
        return changes
    steps = {index: change for index, change in steps.items() if change != _NOTHING}
    begins = not steps and changes.run.status is RunStatus.RUNNING
    return Changes(run=NO_RUN_CHANGE if begins else changes.run, steps=steps)


def _ended(step: StepChange) -> StepChange:
    hosts = {
        name: left for name, host in step.hosts.items() if (left := _of_host(host)) is not None
    }
    if step.status is StepStatus.RUNNING and not hosts:
        return StepChange(plan=step.plan)
    return replace(step, hosts=hosts)


def _of_host(host: HostChange) -> HostChange | None:
    if host.status is HostStatus.RUNNING:
        return None
    items = {
        position: item
        for position, item in host.items.items()
        if item.status is not HostStatus.RUNNING
    }
    if host.items and not items and replace(host, items={}) == HostChange():
        return None
    return replace(host, items=items)


_STARTED = HostState(status=HostStatus.RUNNING, attempts=1)


def with_intents(planned: RunSnapshot, changes: Changes) -> RunSnapshot:
    """The planned run with the first tasks already running, so that starting them needs no update
    of its own and no other process can claim the run."""
    steps = list(planned.steps)
    for index, change in changes.steps.items():
        if change.status is not StepStatus.RUNNING:
            continue
        hosts = steps[index].hosts | {
            name: _STARTED
            for name, host in change.hosts.items()
            if host.status is HostStatus.RUNNING
        }
        steps[index] = replace(steps[index], status=change.status, hosts=hosts)
    return replace(planned, steps=tuple(steps))


def not_born(changes: Changes) -> Changes:
    """The changes that cannot be part of a new run (a step that ends without starting); they follow
    in the first update."""
    left: dict[int, StepChange] = {}
    for index, change in changes.steps.items():
        if change.status is not StepStatus.RUNNING:
            left[index] = change
            continue
        hosts = {
            name: HostChange(items=host.items) if host.status is HostStatus.RUNNING else host
            for name, host in change.hosts.items()
            if host.status is not HostStatus.RUNNING or host.items
        }
        if hosts or change.message is not UNSET:
            left[index] = replace(change, status=UNSET, hosts=hosts)
    return Changes(run=changes.run, steps=left)


_log = logging.getLogger("tenure.runtime")


class RunTracker:
    """Writes a run as its owner, one durable update at a time."""

    def __init__(
        self,
        planned: RunSnapshot,
        write: Callable[[Write], Awaitable[Receipt]],
        new_id: Callable[[], str],
        recorders: RecorderQueue,
        told: OnCommitted | None = None,
    ) -> None:
        self._known = planned
        self._write = write
        self._new_id = new_id
        self._ids: Iterator[str] = iter(new_id, "")
        self._recorders = recorders
        self._on_committed = told
        self.fencing = Fencing("", 0)
        """The right to write as this run's owner, once it was created or claimed."""
        self.holding: HeldLease | None = None
        """Says how long the right is trusted; ``None``: without limit."""
        self.version = 0
        self.cancel_requested_at: datetime | None = None
        self._stuck_since: float | None = None
        """Loop time of the first unanswered write; ``None`` while the store answers."""

    @property
    def is_trusted(self) -> bool:
        """Whether no other owner can have the run. Else nothing of it may start."""
        holding = self.holding
        return holding is None or asyncio.get_running_loop().time() < holding.trusted_until

    async def begin(
        self, changes: Changes, definition: str | None, request: LeaseRequest
    ) -> Lease | None:
        """Create the run with its owner and first starts in one commit. The changes in ``not_born``
        are left to be recorded."""
        born = with_intents(self._known, changes)
        creation = new_run(born, self._new_id(), self._ids, definition=definition, lease=request)
        send = partial(self._write, creation)
        receipt = await until_answered(send, PATIENCE, self._note_stuck)
        self.fencing = Fencing(request.owner_id, receipt.fence)
        self._take(receipt, creation.events, creation.deliveries)
        return _lease_of(receipt, request.owner_id)

    async def take(
        self,
        changes: Changes,
        begin_run: Callable[[Beginning], Awaitable[Receipt]],
        request: LeaseRequest,
    ) -> Lease | None:
        """Claim the queued run with its first starts in one commit. Raises what ``begin_run``
        raises."""
        run = self._known
        beginning = beginning_of(run, changes, request, self._new_id(), self._ids)
        send = partial(begin_run, beginning)
        receipt = await until_answered(send, ENDLESS, self._note_stuck)
        self.fencing = beginning.fencing
        self._recorders.join(run.version)
        effect = beginning.effect
        self._take(receipt, effect.events, effect.deliveries)
        return _lease_of(receipt, request.owner_id)

    def own(self, claimed: ClaimedRun) -> None:
        """Write from now on as the owner of a stored run."""
        self.fencing = claimed.lease.fencing
        self.version = claimed.snapshot.version
        self.cancel_requested_at = claimed.snapshot.cancel_requested_at
        begun = claimed.snapshot.status is RunStatus.RUNNING
        self._recorders.join(self.version - begun)  # a takeover is the first event for recorders

    async def record(self, changes: Changes, *, release: bool = False) -> None:
        """Durable when it returns; without starts if the lease is no longer trusted. Raises
        ``LeaseLost`` and other refusals of the store."""
        update = self._update_of(changes, release=release)
        failures = 0
        while True:
            if not self.is_trusted and (ended := without_starts(changes)) is not changes:
                if release or ended != Changes():
                    await self._record_ended(ended, update if failures else None, release=release)
                return
            try:
                receipt = await self._write(update)
            except VersionConflict as conflict:
                update, failures = replace(update, base_version=conflict.version), 0
            except StoreUnavailable as error:
                failures += 1
                self._note_stuck(error)
                await bear(error, failures, ENDLESS)
            else:
                self._take(receipt, update.effect.events, update.effect.deliveries)
                return

    async def _record_ended(
        self, changes: Changes, in_doubt: Update | None, *, release: bool
    ) -> None:
        """``in_doubt``: an update with starts that the store may have applied."""
        if in_doubt is not None:
            ended = self._update_of(changes, release=release)
            for update in (replace(ended, base_version=in_doubt.base_version), in_doubt):
                send = partial(self._write, update)
                with suppress(VersionConflict):
                    receipt = await until_answered(send, ENDLESS, self._note_stuck)
                    self._take(receipt, update.effect.events, update.effect.deliveries)
                    return
        await self.record(changes, release=release)

    def _update_of(self, changes: Changes, *, release: bool) -> Update:
        for index, change in changes.steps.items():
            if change.plan is not None and index == len(self._known.steps):
                self._known = replace(self._known, steps=(*self._known.steps, change.plan))
        given_back = (released(self.fencing),) if release else ()
        return Update(
            run_id=self._known.run_id,
            update_id=self._new_id(),
            base_version=self.version,
            lease=self.fencing,
            effect=effect_of(self._known, changes, self._ids, *given_back),
            release=release,
        )

    def _take(
        self, receipt: Receipt, events: tuple[Event, ...], deliveries: tuple[NewDelivery, ...]
    ) -> None:
        self.version = receipt.version
        if receipt.cancel_requested_at is not None:
            self.cancel_requested_at = receipt.cancel_requested_at
        stuck_since = self._stuck_since
        if stuck_since is not None:
            self._note_answered(stuck_since)
        self._recorders.hear(events, receipt, repeated=stuck_since is not None)
        if self._on_committed is not None:
            self._on_committed(self._known, events, deliveries, receipt)

    def _note_stuck(self, error: StoreUnavailable) -> None:
        if self._stuck_since is None:
            self._stuck_since = asyncio.get_running_loop().time()
            _log.warning(
                "run %s: the store does not answer (%s); what runs goes on, nothing new starts "
                "until it does",
                self._known.run_id,
                error,
            )

    def _note_answered(self, since: float) -> None:
        self._stuck_since = None
        seconds = asyncio.get_running_loop().time() - since
        _log.warning("run %s: the store answers again after %.1f s", self._known.run_id, seconds)


def _lease_of(receipt: Receipt, owner_id: str) -> Lease | None:
    if receipt.lease_expires_at is None:
        return None
    return Lease(
        run_id=receipt.run_id,
        owner_id=owner_id,
        fence=receipt.fence,
        expires_at=receipt.lease_expires_at,
    )


async def end_run(
    store: RunStateStore,
    new_id: Callable[[], str],
    told: OnCommitted | None,
    run: RunSnapshot,
    fencing: Fencing,
    change: RunChange,
) -> bool:
    """End a run as its owner, in one update that also releases it. False if another process was
    faster."""
    update = Update(
        run_id=run.run_id,
        update_id=new_id(),
        base_version=run.version,
        lease=fencing,
        effect=effect_of(run, Changes(run=change), iter(new_id, "")),
        release=True,
    )
    while True:
        try:
            receipt = await until_answered(partial(store.update_run, update))
        except VersionConflict as conflict:  # for example an annotation
            update = replace(update, base_version=conflict.version)
        except Refused:
            return False
        else:
            if told is not None:
                told(run, update.effect.events, update.effect.deliveries, receipt)
            return True
