"""``Runner``: executes workflows in this process.

async with tenure.Runner(store="sqlite:///runs.db") as runner:
    run = await runner.run(tenure.load_workflow("deploy.yaml"))
    print(run.status)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Self

from msgspec import structs

from tenure.aio import until_answered
from tenure.assembly import Assembly
from tenure.model.errors import NotRunnable, NotSupported, RunExists, StoreUnavailable
from tenure.model.outbox import Delivery
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import RunStatus
from tenure.ports.callbacks import Outbox, RunStateNotifier
from tenure.ports.environment import Broker
from tenure.ports.execution import Action, LocalTasks, Recorder, Transport
from tenure.ports.leases import LeaseStore
from tenure.ports.store import Definitions, RunStateStore
from tenure.runtime.operators import RemoteOperations
from tenure.runtime.options import CallbackSettings, RetentionPolicy, RunOptions, Timing
from tenure.runtime.owners import doubt_about
from tenure.runtime.prepare import (
    Ready,
    cannot_wait,
    packed,
    planned_retry,
    planned_run,
    queued_retry,
    secret_values,
)
from tenure.runtime.recipe import decode_definition, digest_of
from tenure.runtime.reconciler import EndedRuns
from tenure.runtime.retry import RetryOptions, definition_of_retry
from tenure.runtime.run import Work, check_takeable, hint_at, stored_run, stored_work, submit
from tenure.runtime.session import Session
from tenure.system import (
    new_update_id,
    presence,
    run_id_or_new,
)
from tenure.workflow.callbacks import Signing
from tenure.workflow.spec import Workflow
from tenure.workflow_file import WorkflowFile

__all__ = ["RetryOptions", "RunOptions", "Runner"]


class Runner:
    """Executes workflows in this process, queues them for workers, and answers about runs.

    ``store`` is an open store, which stays yours to close, or a URL. Without one runs live in
    memory, and a warning says so. ``tracking=False`` executes without store and notifier: recorders
    are called, and the snapshot that comes back is all that remains. A ``broker`` (or its URL)
    tells workers of what is queued; without it they poll. ``task_groups=False``: no
    control groups for local tasks, for those that make groups of their own.
    """

    def __init__(
        self,
        store: RunStateStore | str | None = None,
        *,
        notifier: RunStateNotifier | None = None,
        recorders: Sequence[Recorder] = (),
        tracking: bool = True,
        actions: Mapping[str, Action] | None = None,
        transport: Transport | None = None,
        runner_id: str | None = None,
        timing: Timing | None = None,
        reconcile_interval: float = 5.0,
        progress_interval: float = 0.0,
        summary_bytes: int = 4096,
        log_cap: int = 10 * 1024 * 1024,
        task_groups: bool = True,
        callbacks: CallbackSettings = CallbackSettings(),
        retention: RetentionPolicy | None = None,
        broker: Broker | str | None = None,
    ) -> None:
        self._parts = Assembly(
            store,
            notifier=notifier,
            recorders=recorders,
            actions=actions,
            transport=transport,
            name=runner_id,
            timing=timing,
            reconcile_interval=reconcile_interval,
            progress_interval=progress_interval,
            summary_bytes=summary_bytes,
            log_cap=log_cap,
            local_tasks=LocalTasks(groups=task_groups),
            callbacks=callbacks,
            retention=retention,
            broker=broker,
            tracking=tracking,
        )
        self._tracking = tracking

    @property
    def owner_id(self) -> str:
        """The id of this runner in the records of its runs."""
        return self._parts.identity.owner_id

    @property
    def signing(self) -> Signing:
        """Which callbacks this runner signs."""
        return self._parts.signing

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the store and mark runs of dead processes as interrupted. Done automatically on
        first use, but not after ``close``."""
        await self._parts.open()

    async def close(self) -> None:
        """End unfinished runs as canceled (one with ``recovery: resume`` is given back to workers),
        and close everything this runner opened. Later calls raise ``RunnerClosed`` until it is
        opened again."""
        await self._parts.close()

    async def run(
        self, workflow: Workflow | WorkflowFile, options: RunOptions = RunOptions()
    ) -> RunSnapshot:
        """Execute a workflow in this process, to its end; returns its final record.

        A failed workflow raises nothing: check ``status`` and ``error``. One that needs approval,
        without one in the options, is returned as ``queued``: ``approve``, then ``execute`` it.
        Raises ``InvalidWorkflow``, ``InvalidRunId`` and ``RunExists`` before anything is executed;
        ``LeaseLost`` if another owner took the run over. Cancelling the call ends the run as
        canceled, then raises ``CancelledError``; cancelling it twice stops at once.
        """
        ready = self._parts.ready.of(workflow, options)
        planned = self._planned(ready, options, embedded=True)
        self.signing.trust(planned.callbacks)
        waits = planned.status is RunStatus.QUEUED
        pack = await packed(ready, options.vars, options.files, waits=waits)
        if waits:
            session = await self._waiting_room(ready, options.store)
            return await self._submit(session, ready, planned, pack.encoded, options)
        session = await self._parts.session(options.store)
        variables = {**options.vars, **options.secrets}
        work = Work(
            prepared=ready.prepared,
            planned=planned,
            definition=pack.encoded,
            variables=variables,
            secrets=secret_values(variables, ready.source.workflow, options.secrets),
            folder=ready.source.folder or ".",
            files=pack.files,
        )
        return await self._perform(session, work, options.notifier)

    async def execute(
        self,
        run_id: str,
        *,
        secrets: Mapping[str, str] = {},
        store: RunStateStore | None = None,
        notifier: RunStateNotifier | None = None,
    ) -> RunSnapshot:
        """Execute a queued run in this process, to its end: it was approved, or there is no worker
        for it.

        It does what its definition says, with the variables it was created with; only secrets are
        kept nowhere. As ``run``, and ``RunNotFound``, ``NotRunnable`` if it waits or has ended,
        ``LeaseHeld`` if another process executes it.
        """
        session = await self._parts.session(store)
        run, definition = await stored_run(session.store, run_id)
        if run.status is not RunStatus.QUEUED:
            raise NotRunnable(run_id, f"is {run.status}, not queued")
        ready = self._parts.ready.stored(self._parts.file_of(definition), definition)
        return await self._perform(session, stored_work(ready, run, secrets), notifier)

    async def retry(self, run_id: str, options: RetryOptions = RetryOptions()) -> RunSnapshot:
        """Execute in this process, as a new run with ``retry_of``, what an ended run left to do:
        on each step the hosts that did not succeed, and handlers that are still due.

        Definition, files, variables, labels, callbacks and time-out are those of the old run;
        secrets have to be given again. As ``run``, and ``RunNotFound``, ``NotRunnable`` if the old
        run goes on, leaves nothing, or is being retried.
        """
        session = await self._parts.session(options.store)
        stored = await stored_run(session.store, run_id)
        file = self._parts.file_of(stored.definition)
        definition = definition_of_retry(stored, file.workflow, options)
        ready = self._parts.ready.stored(file, definition)
        new_id = run_id_or_new(options.run_id)
        planned = planned_retry(stored.snapshot, new_id, ready, options.approved_by)
        text = definition.encode()
        if planned.status is RunStatus.QUEUED:
            session = await self._waiting_room(ready, options.store)
            if isinstance(session.store, RemoteOperations):
                return await _retried_there(session.store, run_id, options, new_update_id())
            return await self._submit(session, ready, planned, text, options)
        work = stored_work(ready, planned, options.secrets)
        work = structs.replace(work, definition=text, folder=definition.folder)
        return await self._perform(session, work, options.notifier)

    def run_sync(
        self, workflow: Workflow | WorkflowFile, options: RunOptions = RunOptions()
    ) -> RunSnapshot:
        """``run`` for callers without an event loop; opens and closes this runner around it."""
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("run_sync is for programs without an event loop; here, await run")

        async def once() -> RunSnapshot:
            async with self:
                return await self.run(workflow, options)

        return asyncio.run(once())

    async def submit(
        self,
        workflow: Workflow | WorkflowFile,
        options: RunOptions = RunOptions(),
        *,
        update_id: str | None = None,
    ) -> RunSnapshot:
        """Queue a run for workers. ``update_id`` identifies the request: sent again with the same
        ``run_id`` after a lost answer, it returns the run it created. Raises ``NotSupported`` if
        workers cannot use this store."""
        if not self._tracking:
            raise ValueError("tracking=False keeps nothing that a worker could find")
        ready = self._parts.ready.of(workflow, options)
        planned = self._planned(ready, options, embedded=False)
        pack = await packed(ready, options.vars, options.files, waits=True)
        session = await self._parts.session(options.store)
        check_takeable(session.store)
        return await self._submit(session, ready, planned, pack.encoded, options, update_id)

    async def submit_retry(
        self,
        run_id: str,
        options: RetryOptions = RetryOptions(),
        *,
        update_id: str | None = None,
    ) -> RunSnapshot:
        """``retry``, queued for workers, which provide the secrets. ``update_id`` as in
        ``submit``."""
        session = await self._parts.session(options.store)
        if isinstance(session.store, RemoteOperations):
            name = update_id or new_update_id()
            return await _retried_there(session.store, run_id, options, name)
        stored = await stored_run(session.store, run_id)
        file = self._parts.file_of(stored.definition)
        definition = definition_of_retry(stored, file.workflow, options)
        ready = self._parts.ready.stored(file, definition)
        new_id = run_id_or_new(options.run_id)
        planned = queued_retry(stored.snapshot, new_id, ready, options.approved_by)
        session = await self._waiting_room(ready, options.store)
        await self._submit(session, ready, planned, definition.encode(), options, update_id)
        return await until_answered(lambda: session.store.get_run(new_id))

    async def get_run(self, run_id: str) -> RunSnapshot:
        """Raises ``RunNotFound``."""
        store = (await self._parts.session()).store
        return await until_answered(lambda: store.get_run(run_id))

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        store = (await self._parts.session()).store
        return await until_answered(lambda: store.list_runs(where, limit=limit, cursor=cursor))

    async def approve(self, run_id: str, *, by: str, note: str | None = None) -> RunSnapshot:
        """Approve a run that waits for it; then ``execute`` it, or a worker does.

        The first approval stands. Raises ``InvalidTransition`` for a run that needs no approval,
        has ended, or whose time for approval is over.
        """
        session = await self._parts.session()
        run = await session.operators.approve(run_id, by=by, note=note)
        await hint_at(session, run)
        return run

    async def cancel(
        self, run_id: str, *, reason: str | None = None, by: str | None = None
    ) -> RunSnapshot:
        """Request a cancel, recorded at once. The run after it: ``canceled`` if it had no owner,
        ``running`` while its owner ends the tasks, unchanged if it had ended."""
        session = await self._parts.session()
        run = await session.operators.cancel(run_id, reason=reason, by=by)
        session.keeper.look_now()
        if doubt_about(run, presence) and not session.attended:
            await session.reconciler.end_abandoned()
            run = await self.get_run(run_id)
        return run

    async def annotate(
        self,
        run_id: str,
        data: dict[str, Any],
        *,
        by: str | None = None,
        update_id: str | None = None,
    ) -> RunSnapshot:
        """Add a note to a run, also to an ended one; its status is not changed. ``update_id``
        identifies this request: sent again, nothing is noted twice."""
        operators = (await self._parts.session()).operators
        return await operators.annotate(run_id, data, by=by, update_id=update_id)

    async def reconcile(self, *, reason: str = "its owner is gone") -> int:
        """End runs whose owner is gone: as canceled if a cancel was requested, else as interrupted
        unless they resume. Returns their number."""
        return (await (await self._parts.session()).reconciler.reconcile(reason)).abandoned

    async def end_abandoned(self, *, reason: str = "its owner is gone") -> EndedRuns:
        """``reconcile``, after waiting for tasks of dead processes; returns the runs' ids."""
        reconciler = (await self._parts.session()).reconciler
        await reconciler.let_tasks_end()
        return await reconciler.reconcile(reason)

    async def redeliver(self, delivery_id: str, *, by: str | None = None) -> Delivery:
        """Send a callback again, under the same id; the run's journal names ``by``. Raises
        ``DeliveryNotFound``; ``NotSupported`` for a store without callbacks."""
        session = await self._parts.session()
        outbox = session.store
        if not isinstance(outbox, Outbox):
            raise NotSupported(f"{type(outbox).__name__} keeps no callbacks")
        again = await session.operators.redeliver(outbox, delivery_id, by=by)
        if session.callbacks is not None:
            session.callbacks.wake()
        return again

    # How it is put together.

    def _planned(self, ready: Ready, options: RunOptions, *, embedded: bool) -> RunSnapshot:
        run_id = run_id_or_new(options.run_id)
        return planned_run(
            run_id,
            ready,
            options,
            self._parts.callbacks.targets,
            embedded=embedded,
            kept=self._tracking,
        )

    async def _waiting_room(self, ready: Ready, store: RunStateStore | None) -> Session:
        """The session in which a run can wait for approval: its store lets another process continue
        it."""
        if not self._tracking:
            raise cannot_wait(ready.source, "nothing is kept without tracking")
        session = await self._parts.session(store)
        if not isinstance(session.store, LeaseStore) or not isinstance(session.store, Definitions):
            raise cannot_wait(ready.source, "this store keeps no leases")
        return session

    @staticmethod
    async def _submit(
        session: Session,
        ready: Ready,
        planned: RunSnapshot,
        definition: str,
        options: RunOptions | RetryOptions,
        update_id: str | None = None,
    ) -> RunSnapshot:
        if isinstance(session.store, RemoteOperations) and isinstance(options, RunOptions):
            secrets = ready.source.workflow.secrets
            kept = {key: value for key, value in options.vars.items() if key not in secrets}
            asked, name = structs.replace(options, vars=kept), update_id or new_update_id()
            return await _submitted_there(session.store, definition, asked, name)
        return await submit(
            session,
            planned,
            definition,
            approval_seconds=ready.source.workflow.plan.approval_timeout,
            notifier=options.notifier,
            update_id=update_id,
            by=options.requested_by,
        )

    def _perform(
        self, session: Session, work: Work, notifier: RunStateNotifier | None
    ) -> Awaitable[RunSnapshot]:
        around, perform = self._parts.around, self._parts.executions.perform
        if not self._tracking:
            return _and_close(session, perform(session, around, work))
        if notifier is not None:
            around = structs.replace(around, notifier=notifier)
        return perform(session, around, work)


async def _submitted_there(
    remote: RemoteOperations, definition: str, options: RunOptions, request_id: str
) -> RunSnapshot:
    """After a lost answer a run of this very id and workflow is the one that was asked for."""
    given, doubtful = decode_definition(definition), False

    def note(_: StoreUnavailable) -> None:
        nonlocal doubtful
        doubtful = True

    try:
        return await until_answered(
            lambda: remote.submit_run(given, options, request_id), failed=note
        )
    except RunExists as error:
        taken = error.run_id
        run = await until_answered(lambda: remote.get_run(taken)) if doubtful else None
        if run is None or run.workflow_digest != digest_of(given.workflow):
            raise
        return run


async def _retried_there(
    remote: RemoteOperations, run_id: str, options: RetryOptions, request_id: str
) -> RunSnapshot:
    return await until_answered(lambda: remote.retry_run(run_id, options, request_id))


async def _and_close(session: Session, performed: Awaitable[RunSnapshot]) -> RunSnapshot:
    """For one that only this run used."""
    try:
        return await performed
    finally:
        await session.close()
