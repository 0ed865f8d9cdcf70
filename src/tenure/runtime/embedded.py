"""Execute a run in this process, from its birth, or from when it is claimed, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from traceback import format_exception
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.beginning import Beginning
from tenure.model.errors import LeaseLost, NotRunnable
from tenure.model.leasing import ClaimedRun, Lease
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.model.update import Changes, Fencing, LeaseRequest, Receipt
from tenure.ports.beginnings import Beginnings
from tenure.ports.lease_store import LeaseStore
from tenure.ports.masking import NOTHING_SECRET, Masking
from tenure.ports.notifier import RunStateNotifier
from tenure.ports.recorder import Recorder
from tenure.ports.transport import Transport
from tenure.runtime.audience import Audience
from tenure.runtime.engine import Engine
from tenure.runtime.executor import Executor
from tenure.runtime.intents import not_born
from tenure.runtime.masking import Masks
from tenure.runtime.outputs import Outputs
from tenure.runtime.patience import surely
from tenure.runtime.recipe import Prepared
from tenure.runtime.session import Session
from tenure.runtime.stop import HAND_OVER, PROCESS_STOPPED, REQUESTED, WORKER_STOPPED
from tenure.runtime.taking_over import cannot_go_on, early_end, time_left, unconfirmed
from tenure.runtime.tracker import RunTracker
from tenure.runtime.waiting import to_a_good_end
from tenure.workflow.variables import Exports


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a run executes in, besides its store."""

    transport: Transport
    recorders: Sequence[Recorder] = ()
    notifier: RunStateNotifier | None = None
    progress_interval: float = 0.0
    summary_bytes: int = 4096
    log_cap: int = 10 * 1024 * 1024
    patience: float = 5.0
    """How long the end of a run waits for recorders and notifier."""
    max_takeovers: int = 5
    """In a row without a host finishing: then a run is left to people."""


class Claim(NamedTuple):
    """A run that this process has got, and the loop's time when it asked."""

    run: ClaimedRun
    sent_at: float


class Work(Struct, frozen=True, kw_only=True, gc=False):
    """One run: what it is to do, and with what."""

    prepared: Prepared
    planned: RunSnapshot
    definition: str | None = None
    """With which it is to be created; ``None``: it is there."""
    claim: Claim | None = None
    """How this process got it; of a run that is there and has none it is made first."""
    waits: Beginnings | None = None
    """Its store, if it was seen to wait and is to be claimed in the commit that begins it."""
    by_worker: bool = False
    """Who stops this process does not mean this run."""
    variables: Mapping[str, Any] = {}
    secrets: Sequence[object] = ()
    """Values to be masked."""
    folder: str | None = None
    """Where files are looked up that did not travel with the run; ``None``: nowhere."""
    files: Mapping[str, bytes] = {}


class EmbeddedRun:
    """Holds a renewed lease from the first commit on."""

    def __init__(self, session: Session, around: Surroundings, work: Work) -> None:
        planned, prepared = work.planned, work.prepared
        self._session = session
        self._around = around
        self._planned = planned
        self._definition = work.definition
        self._claimed = work.claim
        self._waits = work.waits
        self._by_worker = work.by_worker
        self.began = False
        """Something of it may have been executed here."""
        masks = Masks(work.secrets) if work.secrets else None
        self._masks: Masking = masks or NOTHING_SECRET
        told = session.callbacks.told_of(planned, around.notifier) if session.callbacks else None
        self._looked_on = told is not None or bool(around.recorders)
        self._audience = Audience(around.recorders, planned, session.store)
        self._tracker = RunTracker(
            planned, session.combiner.write, session.identity.new_id, self._audience, told
        )
        outputs = Outputs(
            self._tracker,
            self._audience,
            masks,
            session.log_store,
            summary_bytes=around.summary_bytes,
            log_cap=around.log_cap,
        )
        self._engine = Engine(
            planned.run_id,
            prepared,
            Exports(prepared.plan, work.variables),
            Executor(around.transport, outputs.printed, masks),
            self._tracker,
            folder=work.folder,
            files=work.files,
            progress_interval=around.progress_interval,
            resumes=planned.recovery is Recovery.RESUME,
            masks=self._masks,
            now=session.identity.now,
        )

    async def execute(self) -> RunStatus:
        """Cancelled once, it does what ``stop`` says, and lets the cancellation out when the record
        says so; cancelled twice, it stops at once and leaves the record as it is."""
        try:
            return await to_a_good_end(self._whole(), self.stop)
        finally:
            holding, self._tracker.holding = self._tracker.holding, None
            if holding is not None:
                self._session.keeper.drop(holding)
            if self._looked_on:
                await self._onlookers_leave()

    def _whole(self) -> Coroutine[Any, Any, RunStatus]:
        if self._definition is not None:
            return self._engine.drive(self._create, self._planned.timeout)
        return self._go_on() if self._waits is None else self._take(self._waits)

    async def _onlookers_leave(self) -> None:
        time = asyncio.get_running_loop().time
        end_by = time() + self._around.patience
        await self._audience.leave(self._around.patience)
        if self._session.callbacks is not None:
            left = max(end_by - time(), 0.0)
            await self._session.callbacks.notified(self._planned.run_id, left)

    def trace(self, error: Exception) -> str:
        """Of what ``execute`` raised, fit for a log."""
        return self._masks.text("".join(format_exception(error)))

    @property
    def fencing(self) -> Fencing:
        """The right to write as its owner, once this process has it."""
        return self._tracker.fencing

    @property
    def cancel_requested(self) -> bool:
        """As far as the store has told."""
        return self._tracker.cancel_requested_at is not None

    def stop(self) -> None:
        """The process, or who uses the runner, wants to end. A run that resumes is given back. What
        nobody else would go on with ends as interrupted if a worker has it, else as canceled: then
        it is what was stopped."""
        if self._planned.recovery is Recovery.RESUME:
            self._engine.stop(HAND_OVER)
        else:
            self._engine.stop(WORKER_STOPPED if self._by_worker else PROCESS_STOPPED)

    # From its birth

    async def _create(self, changes: Changes) -> Changes:
        sent_at = asyncio.get_running_loop().time()
        lease = await self._tracker.begin(changes, self._definition, self._request())
        self._hold(lease, sent_at)
        return not_born(changes)

    # From where it waits

    async def _take(self, store: Beginnings) -> RunStatus:
        """What ``begin_run`` raises if somebody else was faster."""

        def begin_run(beginning: Beginning) -> Awaitable[Receipt]:
            return self._session.writing.asked(store.begin_run(beginning))

        async def begin(changes: Changes) -> Changes:
            request, sent_at = self._request(), asyncio.get_running_loop().time()
            lease = await self._tracker.take(_begun(changes), begin_run, request)
            self._hold(lease, sent_at)
            if self._planned.recovery is Recovery.RESUME and not self._tracker.is_trusted:
                self.stop()  # what was to begin does so elsewhere
            else:
                self._check_trusted()
            return Changes()

        return await self._engine.drive(begin, self._planned.timeout, self._planned)

    # From where somebody left it

    async def _go_on(self) -> RunStatus:
        claimed, sent_at = self._claimed or await self._claim()
        run = claimed.snapshot
        self._tracker.own(claimed)
        self._hold(claimed.lease, sent_at)
        self._check_trusted()
        end = early_end(run, self._around.max_takeovers)
        try:
            if end is None:
                return await self._engine.drive(self._begin, time_left(run), run)
        except NotRunnable as error:
            end = cannot_go_on(str(error))
        await self._tracker.record(Changes(run=end.change((), unconfirmed(run))))
        return end.status

    def _check_trusted(self) -> None:
        """This process may have been frozen since it claimed: then it begins nothing."""
        if not self._tracker.is_trusted:
            raise LeaseLost(self._planned.run_id, fence=self.fencing.fence, owner_id=None)
        self.began = True

    async def _begin(self, changes: Changes) -> Changes:
        if self._planned.status is RunStatus.QUEUED:
            changes = _begun(changes)
        if changes != Changes():
            await self._tracker.record(changes)
        return Changes()

    async def _claim(self) -> Claim:
        """``LeaseHeld`` or ``NotRunnable`` if somebody else was faster."""
        store, run_id = self._session.store, self._planned.run_id
        if not isinstance(store, LeaseStore):
            raise NotRunnable(run_id, "its store keeps no leases: only who creates a run has it")
        request, sent_at = self._request(), asyncio.get_running_loop().time()
        claimed = await surely(lambda: store.claim_run(run_id, request))
        if claimed.snapshot.status is not RunStatus.QUEUED:
            fencing, release_id = claimed.lease.fencing, self._session.identity.new_id()
            await surely(lambda: store.release_lease(run_id, fencing, release_id))
            raise NotRunnable(run_id, "somebody began it before: only a worker goes on with it")
        return Claim(claimed, sent_at)

    def _request(self) -> LeaseRequest:
        identity = self._session.identity
        return LeaseRequest(
            owner_id=identity.owner_id,
            seconds=self._session.lease_seconds,
            claim_id=identity.new_id(),
            expired=False,
        )

    def _hold(self, lease: Lease | None, sent_at: float) -> None:
        self._tracker.holding = self._session.keeper.hold(
            self._planned.run_id,
            lease,
            sent_at,
            canceled=lambda: self._engine.stop(REQUESTED),
            lost=self._engine.lose,
        )


def _begun(changes: Changes) -> Changes:
    return replace(changes, run=replace(changes.run, status=RunStatus.RUNNING))
