"""Executing a run in this process to its end (``RunExecution``, ``Executions``), submitting a run
for workers (``submit``), and loading a stored run (``stored_run``, ``stored_work``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from traceback import format_exception
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tenure.aio import about, run_with_graceful_cancel, until_answered
from tenure.model.codec import copied
from tenure.model.compose import new_run
from tenure.model.decide import waits_for_approval
from tenure.model.errors import LeaseLost, NotRunnable, NotSupported, StoreUnavailable
from tenure.model.leases import Beginning, ClaimedRun, Lease, create
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.model.update import Changes, Fencing, LeaseRequest, Receipt
from tenure.ports.callbacks import RunStateNotifier
from tenure.ports.execution import NOTHING_SECRET, Masking, Recorder, Transport
from tenure.ports.leases import LeaseStore
from tenure.ports.store import Beginnings, Definitions, LogKey, LogStore, RunStateStore
from tenure.runtime.engine import Engine
from tenure.runtime.executor import Assignment, Executor
from tenure.runtime.masking import Masks
from tenure.runtime.output import LogWriter, OutputSink, file_stem, shown_to
from tenure.runtime.prepare import Ready, check_complete, secret_values
from tenure.runtime.recipe import Definition, Prepared, decode_definition
from tenure.runtime.recorders import RecorderQueue
from tenure.runtime.resume import cannot_go_on, early_end, time_left, unconfirmed
from tenure.runtime.session import Session
from tenure.runtime.stop import HAND_OVER, PROCESS_STOPPED, REQUESTED, WORKER_STOPPED
from tenure.runtime.writer import RunTracker, not_born
from tenure.workflow.plan import Exports


class Outputs:
    """Creates the sink for the output of each attempt of a run: record, log and recorders.

    Holds no reference to its callers: the objects of a run form no cycle, so that they are freed
    when it ends and not by the garbage collector.
    """

    def __init__(
        self,
        tracker: RunTracker,
        recorder_queue: RecorderQueue,
        masks: Masks | None,
        log_store: LogStore | None,
        *,
        summary_bytes: int,
        log_cap: int,
        copies_as: str | None = None,
    ) -> None:
        self._tracker = tracker
        self._recorder_queue = recorder_queue
        self._masks = masks
        self._log_store = log_store
        self._summary_bytes = summary_bytes
        self._log_cap = log_cap
        self._copies_as = copies_as

    def printed(self, assignment: Assignment, attempt: int) -> OutputSink:
        show = None
        if self._recorder_queue.wants_output and not assignment.probe:
            show = shown_to(
                self._recorder_queue.output,
                assignment.run_id,
                assignment.index,
                assignment.recipe.name,
                assignment.host.name,
            )
        return OutputSink(
            self._summary_bytes,
            None if assignment.probe else self._log_opener(assignment, attempt),
            show,
            self._masks,
            partial(_stem, assignment, attempt),
            self._copies_as,
        )

    def _log_opener(self, assignment: Assignment, attempt: int) -> Callable[[], LogWriter] | None:
        store = self._log_store
        if store is None:
            return None
        return lambda: LogWriter(
            store,
            assignment.run_id,
            self._tracker.fencing,
            _keys(assignment, attempt),
            self._log_cap,
        )


def _stem(assignment: Assignment, attempt: int) -> str:
    """The stem of the files with a copy of the output: each attempt has its own."""
    parts = [assignment.recipe.name, assignment.run_id, assignment.index, assignment.host.name]
    if assignment.item is not None:
        parts.append(f"item{assignment.item}")
    if attempt > 1:
        parts.append(f"attempt{attempt}")
    return file_stem(*parts)


def _keys(assignment: Assignment, attempt: int) -> Callable[[str], LogKey]:
    return lambda stream: LogKey(
        step=assignment.index,
        host=assignment.host.name,
        stream=stream,
        item=assignment.item,
        attempt=attempt,
    )


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a run executes in, besides its store."""

    transport: Transport
    recorders: Sequence[Recorder] = ()
    notifier: RunStateNotifier | None = None
    progress_interval: float = 0.0
    summary_bytes: int = 4096
    log_cap: int = 10 * 1024 * 1024
    copies_as: str | None = None
    """The user that writes copies of output (``output_path``), if not this process's."""
    recorder_timeout: float = 5.0
    """Seconds that the end of a run waits for recorders and notifier."""
    max_takeovers: int = 5
    """In a row without a host finishing; then the run ends as interrupted."""


class RunClaim(NamedTuple):
    """A run claimed by this process, and the loop's time when the claim was sent."""

    run: ClaimedRun
    sent_at: float


class Work(Struct, frozen=True, kw_only=True, gc=False):
    """One run to execute, with everything it needs."""

    prepared: Prepared
    planned: RunSnapshot
    definition: str | None = None
    """With which it is created; ``None``: it is stored already."""
    claim: RunClaim | None = None
    """``None``: a stored run is claimed first."""
    waits: Beginnings | None = None
    """Its store, if the run is queued and is to be claimed in the commit that begins it."""
    by_worker: bool = False
    """Stopping this process does not cancel the run."""
    variables: Mapping[str, Any] = {}
    secrets: Sequence[object] = ()
    """Values to be masked."""
    folder: str | None = None
    """Where files are looked up that are not stored with the run; ``None``: nowhere."""
    files: Mapping[str, bytes] = {}


class RunExecution:
    """Holds a renewed lease from the first commit on."""

    def __init__(self, session: Session, surroundings: Surroundings, work: Work) -> None:
        planned, prepared = work.planned, work.prepared
        self._session = session
        self._surroundings = surroundings
        self._planned = planned
        self._definition = work.definition
        self._claimed = work.claim
        self._waiting_in = work.waits
        self._by_worker = work.by_worker
        self.began = False
        """A task of it may have been executed here."""
        masks = Masks(work.secrets) if work.secrets else None
        self._masks: Masking = masks or NOTHING_SECRET
        on_committed = (
            session.callbacks.listener_for(planned, surroundings.notifier)
            if session.callbacks
            else None
        )
        self._has_recorders = on_committed is not None or bool(surroundings.recorders)
        self._recorder_queue = RecorderQueue(surroundings.recorders, planned, session.store)
        self._tracker = RunTracker(
            planned,
            session.combiner.write,
            session.identity.new_id,
            self._recorder_queue,
            on_committed,
        )
        outputs = Outputs(
            self._tracker,
            self._recorder_queue,
            masks,
            session.log_store,
            summary_bytes=surroundings.summary_bytes,
            log_cap=surroundings.log_cap,
            copies_as=surroundings.copies_as,
        )
        self._engine = Engine(
            planned.run_id,
            prepared,
            Exports(prepared.plan, work.variables),
            Executor(surroundings.transport, outputs.printed, masks),
            self._tracker,
            folder=work.folder,
            files=work.files,
            progress_interval=surroundings.progress_interval,
            resumes=planned.recovery is Recovery.RESUME,
            max_takeovers=surroundings.max_takeovers,
            masks=self._masks,
            now=session.identity.now,
        )

    async def execute(self) -> RunStatus:
        """Cancelled once, it calls ``stop`` and raises the cancellation when the end is recorded;
        cancelled twice, it stops at once and leaves the record as it is."""
        try:
            return await run_with_graceful_cancel(self._drive(), self.stop)
        finally:
            holding, self._tracker.holding = self._tracker.holding, None
            if holding is not None:
                self._session.keeper.drop(holding)
            if self._has_recorders:
                await self._finish_recorders()

    def _drive(self) -> Coroutine[Any, Any, RunStatus]:
        if self._definition is not None:
            return self._engine.drive(self._create, self._planned.timeout)
        return (
            self._continue() if self._waiting_in is None else self._begin_waiting(self._waiting_in)
        )

    async def _finish_recorders(self) -> None:
        time = asyncio.get_running_loop().time
        end_by = time() + self._surroundings.recorder_timeout
        await self._recorder_queue.leave(self._surroundings.recorder_timeout)
        if self._session.callbacks is not None:
            left = max(end_by - time(), 0.0)
            await self._session.callbacks.notified(self._planned.run_id, left)

    def trace(self, error: Exception) -> str:
        """The masked traceback of an error raised by ``execute``."""
        return self._masks.text("".join(format_exception(error)))

    @property
    def fencing(self) -> Fencing:
        """The right to write as the run's owner, once this process has it."""
        return self._tracker.fencing

    @property
    def cancel_requested(self) -> bool:
        """Whether the store has reported a cancel request."""
        return self._tracker.cancel_requested_at is not None

    def stop(self) -> None:
        """The process ends, or the user of the runner stops it. A run that resumes is given back.
        Others end as interrupted in a worker, else as canceled."""
        if self._planned.recovery is Recovery.RESUME:
            self._engine.stop(HAND_OVER)
        else:
            self._engine.stop(WORKER_STOPPED if self._by_worker else PROCESS_STOPPED)

    # A new run.

    async def _create(self, changes: Changes) -> Changes:
        sent_at = asyncio.get_running_loop().time()
        lease = await self._tracker.begin(changes, self._definition, self._request())
        self._hold(lease, sent_at)
        return not_born(changes)

    # A queued run.

    async def _begin_waiting(self, store: Beginnings) -> RunStatus:
        """Raises what ``begin_run`` raises if another worker was faster."""

        def begin_run(beginning: Beginning) -> Awaitable[Receipt]:
            return self._session.writing.asked(store.begin_run(beginning))

        async def begin(changes: Changes) -> Changes:
            request, sent_at = self._request(), asyncio.get_running_loop().time()
            lease = await self._tracker.take(_begun(changes), begin_run, request)
            self._hold(lease, sent_at)
            if self._planned.recovery is Recovery.RESUME and not self._tracker.is_trusted:
                self.stop()  # it begins in another process
            else:
                self._check_trusted()
            return Changes()

        return await self._engine.drive(begin, self._planned.timeout, self._planned)

    # A run that was claimed, perhaps from an earlier owner.

    async def _continue(self) -> RunStatus:
        claimed, sent_at = self._claimed or await self._claim()
        run = claimed.snapshot
        self._tracker.own(claimed)
        self._hold(claimed.lease, sent_at)
        self._check_trusted()
        end = early_end(run, self._surroundings.max_takeovers)
        try:
            if end is None:
                return await self._engine.drive(self._begin, time_left(run), run)
        except NotRunnable as error:
            end = cannot_go_on(str(error))
        await self._tracker.record(Changes(run=end.change((), unconfirmed(run))))
        return end.status

    def _check_trusted(self) -> None:
        """``LeaseLost`` if this process was frozen since the claim: then nothing is begun."""
        if not self._tracker.is_trusted:
            raise LeaseLost(self._planned.run_id, fence=self.fencing.fence, owner_id=None)
        self.began = True

    async def _begin(self, changes: Changes) -> Changes:
        if self._planned.status is RunStatus.QUEUED:
            changes = _begun(changes)
        if changes != Changes():
            await self._tracker.record(changes)
        return Changes()

    async def _claim(self) -> RunClaim:
        """``LeaseHeld`` or ``NotRunnable`` if another process was faster."""
        store, run_id = self._session.store, self._planned.run_id
        if not isinstance(store, LeaseStore):
            raise NotRunnable(run_id, "its store keeps no leases: only its creator can run it")
        request, sent_at = self._request(), asyncio.get_running_loop().time()
        claimed = await until_answered(lambda: store.claim_run(run_id, request))
        if claimed.snapshot.status is not RunStatus.QUEUED:
            fencing, release_id = claimed.lease.fencing, self._session.identity.new_id()
            await until_answered(lambda: store.release_lease(run_id, fencing, release_id))
            raise NotRunnable(run_id, "it has begun before: only a worker can continue it")
        return RunClaim(claimed, sent_at)

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


class Executions:
    """The runs that this process executes now."""

    def __init__(self) -> None:
        self._runs: set[RunExecution] = set()
        self._last_ended: asyncio.Event | None = None

    async def perform(
        self, session: Session, surroundings: Surroundings, work: Work
    ) -> RunSnapshot:
        """Execute a run to its end; its final record."""
        run = RunExecution(session, surroundings, work)
        self._runs.add(run)
        try:
            with about(work.planned.run_id):
                await run.execute()
            return await until_answered(lambda: session.store.get_run(work.planned.run_id))
        finally:
            self._runs.discard(run)
            if self._last_ended is not None and not self._runs:
                self._last_ended.set()

    async def stop(self) -> None:
        """Stop all runs and wait for their end."""
        if self._runs:
            self._last_ended = asyncio.Event()
            for run in self._runs:
                run.stop()
            await self._last_ended.wait()


USE_INSTEAD = "SQLite (sqlite:///runs.db) and PostgreSQL (postgresql://…) have what workers need"


def check_takeable(store: RunStateStore) -> None:
    """``NotSupported`` for a store from which no worker can take a run: it would stay queued for
    ever."""
    if not isinstance(store, LeaseStore):
        raise not_takeable(type(store).__name__)
    if not isinstance(store, Definitions):
        raise not_takeable(type(store).__name__, "definitions of runs")


def not_takeable(kind: str, lacks: str = "leases") -> NotSupported:
    return NotSupported(
        f"{kind} keeps no {lacks}: no worker could ever take a run from it; {USE_INSTEAD}; "
        "tenure run (Runner.run) executes it here and now"
    )


def not_servable(kind: str) -> NotSupported:
    """For a worker of such a store."""
    return NotSupported(f"workers need a store with leases, and {kind} has none: {USE_INSTEAD}")


def nobody_could_submit(store: str) -> NotSupported:
    """For a worker of a store that no other process can see."""
    seen = f"{store} is seen by this process alone: no run can be submitted to it"
    return NotSupported(f"{seen}; {USE_INSTEAD}; tenure run executes one here and now")


async def submit(
    session: Session,
    planned: RunSnapshot,
    definition: str,
    *,
    approval_seconds: float | None = None,
    notifier: RunStateNotifier | None = None,
    update_id: str | None = None,
    by: str | None = None,
) -> RunSnapshot:
    """Store a run for workers; the run as stored, or as it is now if an answer was lost.

    ``approval_seconds``: how long it may wait for approval. ``update_id`` identifies the request:
    sent again with the same ``run_id``, it finds the run it created. ``by``: the requester, for the
    journal."""
    new_id = session.identity.new_id
    creation = new_run(
        planned,
        update_id or new_id(),
        iter(new_id, ""),
        by=by,
        definition=definition,
        approval_seconds=approval_seconds or None,
    )
    doubtful = False

    def note(_: StoreUnavailable) -> None:
        nonlocal doubtful
        doubtful = True

    receipt = await until_answered(lambda: session.combiner.write(creation), failed=note)
    on_committed = session.callbacks and session.callbacks.listener_for(planned, notifier)
    if on_committed:
        on_committed(planned, creation.events, creation.deliveries, receipt)
    await hint_at(session, planned)
    if doubtful or receipt.updated_at is None:
        return await until_answered(lambda: session.store.get_run(planned.run_id))
    return copied(create(creation, receipt.updated_at))


async def hint_at(session: Session, run: RunSnapshot) -> None:
    """Give workers a hint if the run can be claimed now. Later start times are announced by the
    store, approvals by the approving process."""
    if session.hinting is None or run.status is not RunStatus.QUEUED:
        return
    waits = waits_for_approval(run) and run.approval.by is None
    if not waits and (run.run_after is None or run.run_after <= session.identity.now()):
        await session.hinting.hint(run.queue, run.run_id)


class StoredRun(NamedTuple):
    """A stored run with the definition it executes."""

    snapshot: RunSnapshot
    definition: Definition


async def stored_run(store: RunStateStore, run_id: str) -> StoredRun:
    """Raises ``RunNotFound``; ``NotRunnable`` if its store keeps no definition of it."""
    run = await until_answered(lambda: store.get_run(run_id))
    text = None
    if isinstance(store, Definitions):
        text = await until_answered(lambda: store.get_definition(run_id))
    if text is None:
        raise NotRunnable(run_id, "its store keeps no definition of it: start a new run")
    return StoredRun(run, decode_definition(text))


def stored_work(
    ready: Ready, planned: RunSnapshot, secrets: Mapping[str, str], *, by_worker: bool = False
) -> Work:
    """The work of a stored run. ``InvalidWorkflow`` if a secret is missing."""
    check_complete(ready, planned.vars.keys(), secrets.keys(), by_worker=by_worker)
    variables = {**planned.vars, **secrets}
    return Work(
        prepared=ready.prepared,
        planned=planned,
        variables=variables,
        secrets=secret_values(variables, ready.source.workflow, secrets),
        files=ready.definition.files,
        by_worker=by_worker,
    )
