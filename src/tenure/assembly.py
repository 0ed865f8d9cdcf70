"""Puts the parts of a runner or worker together: stores, sessions, transport, broker, workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import SimpleNamespace

from tenure.bootstrap import (
    OpenBroker,
    OpenStore,
    default_actions,
    default_sender,
    default_transport,
    open_broker,
    open_store,
    private_memory,
    warn_unless_durable,
)
from tenure.model.errors import InvalidOptions
from tenure.ports.callbacks import RunStateNotifier
from tenure.ports.environment import Broker
from tenure.ports.execution import Action, LocalTasks, Recorder, Transport, TrustWindows
from tenure.ports.store import RunStateStore
from tenure.runtime.callbacks import Callbacks
from tenure.runtime.options import (
    MORE_SECONDS,
    MOST_TAKEOVERS,
    SECONDS,
    CallbackSettings,
    RetentionPolicy,
    Rules,
    Timing,
    broken,
    whole,
)
from tenure.runtime.prepare import ReadyWorkflows
from tenure.runtime.recipe import Definition
from tenure.runtime.run import Executions, Surroundings
from tenure.runtime.session import Hinting, Identity, Session, Sessions
from tenure.system import SystemClock, new_owner_id, new_update_id, presence
from tenure.wire.addresses import shown_address
from tenure.workflow.spec import Workflow
from tenure.workflow_file import WorkflowFile, as_file, read_workflow

_MAX_BYTES = 1 << 40
_RULES: Rules = {
    "reconcile_interval": MORE_SECONDS,
    "progress_interval": SECONDS,
    "summary_bytes": whole(0, _MAX_BYTES),
    "log_cap": whole(0, _MAX_BYTES),
    "max_takeovers": whole(1, MOST_TAKEOVERS),
}


class Assembly:
    """The parts of one runner or worker, opened and closed together."""

    def __init__(
        self,
        store: RunStateStore | str | None,
        *,
        notifier: RunStateNotifier | None,
        recorders: Sequence[Recorder],
        actions: Mapping[str, Action] | None,
        transport: Transport | None,
        name: str | None,
        timing: Timing | None,
        reconcile_interval: float,
        progress_interval: float,
        summary_bytes: int,
        log_cap: int,
        local_tasks: LocalTasks,
        callbacks: CallbackSettings,
        retention: RetentionPolicy | None,
        broker: Broker | str | None,
        visibility_timeout: float = 30.0,
        max_takeovers: int = 5,
        tracking: bool = True,
        mistakes: Sequence[str] = (),
    ) -> None:
        """``InvalidOptions`` with the ``mistakes`` found by the caller and those found here."""
        numbers = SimpleNamespace(
            reconcile_interval=reconcile_interval,
            progress_interval=progress_interval,
            summary_bytes=summary_bytes,
            log_cap=log_cap,
            max_takeovers=max_takeovers,
        )
        wrong = [*mistakes, *broken(_RULES, numbers, _RULES)]
        if wrong:
            raise InvalidOptions(wrong)
        self.tracking = tracking
        self.callbacks = callbacks
        self.signing = callbacks.signing()
        self.timing = timing or Timing()
        self.around = Surroundings(
            transport=transport or default_transport(local_tasks),
            recorders=tuple(recorders),
            progress_interval=progress_interval,
            summary_bytes=summary_bytes,
            log_cap=log_cap,
            copies_as=local_tasks.user,
            max_takeovers=max_takeovers,
        )
        self.identity = Identity(
            owner_id=new_owner_id(name),
            new_id=new_update_id,
            presence=presence,
            now=SystemClock().now,
            runner_id=name,
        )
        self.executions = Executions()
        self._wanted_store = store
        self._own_transport = transport is None
        self._notifier = notifier
        self._reconcile_interval = reconcile_interval
        self._retention = retention
        self._own_store: OpenStore | None = None
        self._main: RunStateStore | None = None
        self._wanted_broker = broker
        self._visibility_timeout = visibility_timeout
        self._own_broker: OpenBroker | None = None
        self._opening_broker = asyncio.Lock()
        self._sessions = Sessions(self._main_store, self._new_session)
        self._actions: Callable[[], Mapping[str, Action]] = (
            default_actions if actions is None else lambda: actions
        )
        self.ready: ReadyWorkflows[Workflow | WorkflowFile] = ReadyWorkflows(as_file, self._actions)

    async def open(self) -> None:
        """May be called again after ``close``."""
        self._sessions.welcome()
        if self.tracking:
            try:
                await self._sessions.of()
            except BaseException:
                await self.close()  # nothing is entered that would close it
                self._sessions.welcome()  # the next call tries again
                raise

    async def close(self) -> None:
        """Stop the runs and close everything, also if one part fails: sessions, and the store,
        broker and transport that were opened here."""
        async with AsyncExitStack() as closing:
            if self._own_transport:
                closing.push_async_callback(self.around.transport.close)
            closing.push_async_callback(self._close_own_store)
            closing.push_async_callback(self._close_own_broker)
            closing.push_async_callback(self._sessions.close)
            closing.push_async_callback(self.executions.stop)
            await self._sessions.refuse()

    async def session(self, store: RunStateStore | None = None) -> Session:
        """Raises ``RunnerClosed``."""
        if self.tracking:
            return await self._sessions.of(store)
        self._sessions.check_open()
        # A new one for each run: nothing is stored.
        return self._new_session(private_memory())

    def file_of(self, definition: Definition) -> WorkflowFile:
        return read_workflow(
            definition.workflow,
            source=definition.source or "workflow",
            folder=definition.folder,
            actions=self._actions(),
        )

    async def broker(self) -> Broker | None:
        """Opened at its first use, since most runners never give a hint. Raises
        ``UnknownBroker``."""
        wanted = self._wanted_broker
        if not isinstance(wanted, str):
            return wanted
        async with self._opening_broker:
            if self._own_broker is None:
                opening = partial(open_broker, wanted, visibility_timeout=self._visibility_timeout)
                self._own_broker = await asyncio.to_thread(opening)
            return self._own_broker

    async def _main_store(self) -> RunStateStore:
        wanted = self._wanted_store
        if wanted is None or isinstance(wanted, str):
            wanted = self._own_store = await asyncio.to_thread(open_store, wanted)
        self._main = wanted
        return wanted

    async def _close_own_store(self) -> None:
        store, self._own_store = self._own_store, None
        if store is not None:
            await store.close()

    async def _close_own_broker(self) -> None:
        broker, self._own_broker = self._own_broker, None
        if broker is not None:
            await broker.close()

    def _new_session(self, store: RunStateStore) -> Session:
        callbacks = None
        if self.tracking:
            warn_unless_durable(store)
            sending = self.callbacks
            sender = default_sender(
                sending.timeout, sending.allow_private, self.signing, sending.targets
            )
            callbacks = Callbacks(store, sender, sending, new_update_id, self._notifier)
        transport = self.around.transport
        return Session(
            store,
            self.identity,
            self.timing,
            self._reconcile_interval,
            callbacks,
            transport if isinstance(transport, TrustWindows) else None,
            self._retention if self.tracking else None,
            self._new_hinting(store),
        )

    def _new_hinting(self, store: RunStateStore) -> Hinting | None:
        """Hints are given for runs of the main store only, which workers use."""
        wanted = self._wanted_broker
        if wanted is None or store is not self._main:
            return None
        name = shown_address(wanted) if isinstance(wanted, str) else type(wanted).__name__
        return Hinting(self.broker, name)
