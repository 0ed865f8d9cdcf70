"""``Runner``, the library's front door.

async with tenure.Runner(store="sqlite:///runs.db") as runner:
    run = await runner.run(tenure.load_workflow("deploy.yaml"))
    print(run.status)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from msgspec import structs

from tenure.bootstrap import (
    OpenStore,
    default_actions,
    default_sender,
    default_transport,
    open_store,
    private_memory,
    warn_unless_durable,
)
from tenure.model.compose import new_run
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import RunStatus
from tenure.ports.action import Action
from tenure.ports.notifier import RunStateNotifier
from tenure.ports.recorder import Recorder
from tenure.ports.run_store import RunStateStore
from tenure.ports.transport import Transport
from tenure.ports.trust import TrustWindows
from tenure.runtime.birth import planned_run, secret_values
from tenure.runtime.callback_settings import CallbackSettings
from tenure.runtime.callbacks import Callbacks
from tenure.runtime.embedded import EmbeddedRun, Surroundings
from tenure.runtime.keeper import Timing
from tenure.runtime.options import RunOptions
from tenure.runtime.owners import doubt_about
from tenure.runtime.patience import surely
from tenure.runtime.ready import Ready, ReadyWorkflows
from tenure.runtime.recovery import ON_START
from tenure.runtime.session import Identity, Session
from tenure.runtime.sessions import Sessions
from tenure.system import new_owner_id, new_run_id, new_update_id, presence, proven_dead
from tenure.workflow.spec import Workflow
from tenure.workflow_file import WorkflowFile, as_file

__all__ = ["RunOptions", "Runner"]


class Runner:
    """Executes workflows in this process, queues them for workers, and answers about runs.

    ``store`` is an open store, which stays yours to close, or a URL. Without one runs live in
    memory, and a warning says so. ``tracking=False`` executes without store and notifier: recorders
    are called, and the snapshot that comes back is all that remains.
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
        callbacks: CallbackSettings = CallbackSettings(),
    ) -> None:
        self._wanted_store = store
        self._tracking = tracking
        self._transport = transport
        self._around = Surroundings(
            transport=transport or default_transport(),
            recorders=tuple(recorders),
            progress_interval=progress_interval,
            summary_bytes=summary_bytes,
            log_cap=log_cap,
        )
        self._identity = Identity(
            owner_id=new_owner_id(runner_id),
            new_id=new_update_id,
            proven_dead=proven_dead,
            runner_id=runner_id,
        )
        self._timing = timing or Timing()
        self._notifier = notifier
        self._callbacks = callbacks
        self._reconcile_interval = reconcile_interval
        self._own_store: OpenStore | None = None
        self._sessions = Sessions(self._main_store, self._new_session)
        self._runs: set[EmbeddedRun] = set()
        self._last_run_ended: asyncio.Event | None = None
        self._ready = ReadyWorkflows(
            as_file, default_actions if actions is None else lambda: actions
        )

    @property
    def owner_id(self) -> str:
        """This runner as the record names it."""
        return self._identity.owner_id

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the store and mark as interrupted what a dead process left running in it. The first
        use does so by itself, but not after ``close``."""
        self._sessions.welcome()
        if self._tracking:
            await self._sessions.main()

    async def close(self) -> None:
        """End runs that have not ended, as canceled, and let go of everything that is this
        runner's own: all of it, also if one part cannot be closed. From now on it refuses with
        ``RunnerClosed``, until somebody opens it again."""
        async with AsyncExitStack() as closing:
            if self._transport is None:
                closing.push_async_callback(self._around.transport.close)
            closing.push_async_callback(self._close_own_store)
            closing.push_async_callback(self._sessions.close)
            closing.push_async_callback(self._end_runs)
            await self._sessions.refuse()

    async def run(
        self, workflow: Workflow | WorkflowFile, options: RunOptions = RunOptions()
    ) -> RunSnapshot:
        """Execute here and now, to the end; the record as the store then has it.

        A workflow that fails is no exception: look at ``status`` and ``error``.
        ``InvalidWorkflow``, ``InvalidRunId`` and ``RunExists`` come before anything is executed;
        ``LeaseLost`` if another owner took the run away. Cancelling the call ends the run as
        canceled, then ``CancelledError`` comes out; cancelling it twice stops at once.
        """
        ready = self._ready.of(workflow, options)
        run_id = options.run_id or new_run_id()
        planned = self._planned(run_id, ready, options, RunStatus.RUNNING)
        session = await self._session(options.store)
        variables = {**options.vars, **options.secrets}
        run = EmbeddedRun(
            session,
            self._surroundings(options),
            ready.prepared,
            planned,
            ready.definition,
            variables=variables,
            secrets=secret_values(variables, ready.prepared.plan.workflow, options),
            folder=ready.source.folder,
        )
        self._runs.add(run)
        try:
            await run.execute()
            return await surely(lambda: session.store.get_run(run_id))
        finally:
            self._runs.discard(run)
            if self._last_run_ended is not None and not self._runs:
                self._last_run_ended.set()
            if not self._tracking:
                await session.close()

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
        self, workflow: Workflow | WorkflowFile, options: RunOptions = RunOptions()
    ) -> RunSnapshot:
        """Queue it for workers."""
        if not self._tracking:
            raise ValueError("tracking=False keeps nothing that a worker could find")
        ready = self._ready.of(workflow, options)
        run_id = options.run_id or new_run_id()
        planned = self._planned(run_id, ready, options, RunStatus.QUEUED)
        session = await self._session(options.store)
        creation = new_run(
            planned, new_update_id(), iter(new_update_id, ""), definition=ready.definition
        )
        receipt = await surely(lambda: session.combiner.write(creation))
        told = session.callbacks and session.callbacks.told_of(planned, options.notifier)
        if told:
            told(planned, creation.events, creation.deliveries, receipt)
        return await surely(lambda: session.store.get_run(run_id))

    async def get_run(self, run_id: str) -> RunSnapshot:
        """``RunNotFound`` rather than an invented one."""
        store = (await self._session()).store
        return await surely(lambda: store.get_run(run_id))

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        store = (await self._session()).store
        return await surely(lambda: store.list_runs(where, limit=limit, cursor=cursor))

    async def cancel(
        self, run_id: str, *, reason: str | None = None, by: str | None = None
    ) -> RunSnapshot:
        """Recorded at once. The run as it then stands: ``canceled`` if nobody was running it,
        ``running`` while its owner ends what runs, or the end it had reached before."""
        session = await self._session()
        run = await session.operators.cancel(run_id, reason=reason, by=by)
        session.keeper.look_now()
        if doubt_about(run, presence):
            await session.reconciler.reconcile(ON_START, expired=False)
            run = await self.get_run(run_id)
        return run

    async def annotate(
        self, run_id: str, data: dict[str, Any], *, by: str | None = None
    ) -> RunSnapshot:
        """Note what was found out later; also on ended runs, never touching their status."""
        return await (await self._session()).operators.annotate(run_id, data, by=by)

    async def reconcile(self, *, reason: str = "its owner is gone") -> int:
        """Mark runs as interrupted whose owner is gone and that do not resume; how many."""
        return len(await (await self._session()).reconciler.reconcile(reason))

    # How it is put together

    async def _end_runs(self) -> None:
        if self._runs:
            self._last_run_ended = asyncio.Event()
            for run in self._runs:
                run.stop()
            await self._last_run_ended.wait()

    async def _close_own_store(self) -> None:
        store, self._own_store = self._own_store, None
        if store is not None:
            await store.close()

    async def _session(self, store: RunStateStore | None = None) -> Session:
        self._sessions.check_open()
        if not self._tracking:
            # A fresh one per run: nothing is kept.
            return self._new_session(private_memory())
        if store is not None:
            return await self._sessions.of(store)
        return await self._sessions.main()

    def _new_session(self, store: RunStateStore) -> Session:
        if self._tracking:
            warn_unless_durable(store)
            callbacks = Callbacks(
                store,
                default_sender(self._callbacks.timeout, self._callbacks.allow_private),
                self._callbacks,
                new_update_id,
                self._notifier,
            )
        else:
            callbacks = None
        transport = self._around.transport
        return Session(
            store,
            self._identity,
            self._timing,
            self._reconcile_interval,
            callbacks,
            transport if isinstance(transport, TrustWindows) else None,
        )

    def _planned(
        self, run_id: str, ready: Ready, options: RunOptions, status: RunStatus
    ) -> RunSnapshot:
        return planned_run(run_id, ready, options, status, self._callbacks.targets)

    async def _main_store(self) -> RunStateStore:
        wanted = self._wanted_store
        if wanted is None or isinstance(wanted, str):
            wanted = self._own_store = await asyncio.to_thread(open_store, wanted)
        return wanted

    def _surroundings(self, options: RunOptions) -> Surroundings:
        if options.notifier is None or not self._tracking:
            return self._around
        return structs.replace(self._around, notifier=options.notifier)
