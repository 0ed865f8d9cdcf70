"""``Worker``: executes queued runs until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

from tenure.aio import (
    end,
    finished_within,
    pause,
    run_with_graceful_cancel,
    times_cancelled,
    until_answered,
    wait_for_event,
)
from tenure.assembly import Assembly
from tenure.bootstrap import default_actions
from tenure.model.errors import TenureError
from tenure.model.query import topic_of_queue
from tenure.ports.callbacks import RunStateNotifier
from tenure.ports.environment import Broker
from tenure.ports.execution import Action, LocalTasks, Recorder, Transport
from tenure.ports.leases import LeaseStore, Wakeups, WorkerInfo, WorkerRegistry
from tenure.ports.store import Definitions, RunStateStore
from tenure.runtime.group_commit import InTouch
from tenure.runtime.options import (
    A_QUEUE,
    MORE_SECONDS,
    CallbackSettings,
    RetentionPolicy,
    Rules,
    Timing,
    broken,
    broken_together,
    hidden_for,
    is_queue,
)
from tenure.runtime.prepare import Ready
from tenure.runtime.recipe import Definition
from tenure.runtime.run import not_servable
from tenure.system import Account
from tenure.worker.claims import Capacity, ClaimLoop, Claims, LoneRun
from tenure.worker.hints import HintListener
from tenure.worker.runs import Pace, RunningRuns, RunPreparation

_log = logging.getLogger("tenure.worker")

_HEARTBEATS_LISTED = 3
"""Heartbeats that may be missed before a worker is no longer listed."""
_HIDDEN: Rules = {"visibility_timeout": MORE_SECONDS}
_NO_HEARTBEAT = (
    "the store does not take this worker's heartbeat, and until it does no expired lease is taken: "
    "%s"
)
_SIGN_OFF_TIMEOUT_S = 2.0
"""For removing this worker from the register; else its entry expires."""
_CLOSE_TIMEOUT_S = 8.0
"""For closing everything, besides the time for callbacks."""
_CLOSE_AT_ONCE_TIMEOUT_S = 0.5
_CANCELS_TO_STOP = 2
"""Cancellations after which nothing is waited for."""


class Worker:
    """``await Worker("postgresql://…").run()`` executes queued runs until ``drain``.

    ``pace`` says how many at once. ``secrets`` are values for the secrets that workflows declare,
    since runs carry none. With a ``broker`` (or its URL; then ``visibility_timeout`` is how long a
    hint that was handed out stays hidden; half the lease unless it is given) runs are also found by
    its hints. With ``pass_env`` tasks do not inherit this process's environment, but for the usual
    variables (``PATH``, ``HOME``, ``LANG`` and the like) and these. ``task_user``: the user local
    tasks run as, if this process is root. ``python_modules``: those whose functions ``python.call``
    may call, instead of any, unless ``actions`` are given. The rest is as for ``Runner``.
    ``InvalidOptions`` names all invalid options.
    """

    def __init__(
        self,
        store: RunStateStore | str | None = None,
        *,
        queues: Sequence[str] = ("default",),
        pace: Pace = Pace(),
        secrets: Mapping[str, str] | None = None,
        max_takeovers: int = 5,
        notifier: RunStateNotifier | None = None,
        recorders: Sequence[Recorder] = (),
        actions: Mapping[str, Action] | None = None,
        transport: Transport | None = None,
        worker_id: str | None = None,
        timing: Timing | None = None,
        reconcile_interval: float = 5.0,
        progress_interval: float = 0.0,
        summary_bytes: int = 4096,
        log_cap: int = 10 * 1024 * 1024,
        task_groups: bool = True,
        pass_env: Sequence[str] | None = None,
        task_user: str | None = None,
        python_modules: Sequence[str] | None = None,
        callbacks: CallbackSettings = CallbackSettings(),
        retention: RetentionPolicy | None = None,
        broker: Broker | str | None = None,
        visibility_timeout: float | None = None,
    ) -> None:
        times = timing or Timing()
        hidden = visibility_timeout
        if hidden is None:
            hidden = hidden_for(times.lease_duration, times.renew_interval)
        self._parts = Assembly(
            store,
            notifier=notifier,
            recorders=recorders,
            actions=default_actions(python_modules) if actions is None else actions,
            transport=transport,
            name=worker_id,
            timing=times,
            reconcile_interval=reconcile_interval,
            progress_interval=progress_interval,
            summary_bytes=summary_bytes,
            log_cap=log_cap,
            local_tasks=LocalTasks(
                groups=task_groups,
                pass_env=None if pass_env is None else tuple(pass_env),
                user=task_user,
            ),
            callbacks=callbacks,
            retention=retention,
            broker=broker,
            visibility_timeout=hidden,
            max_takeovers=max_takeovers,
            mistakes=[
                *_problems_of_queues(queues),
                *_problems_of_user(task_user),
                *_problems_of_times(times, pace, hidden),
            ],
        )
        self._queues = tuple(dict.fromkeys(queues))
        self._pace = pace
        self._secrets: Mapping[str, str] = {} if secrets is None else secrets
        self._look_interval = reconcile_interval
        self._listed_for = reconcile_interval * _HEARTBEATS_LISTED
        self._wake = asyncio.Event()
        self._duty: ClaimLoop | None = None
        self._store_answers = True
        self._early_drains: list[bool] = []
        self._draining = asyncio.Event()

    @property
    def owner_id(self) -> str:
        """The id of this worker in the records of its runs."""
        return self._parts.identity.owner_id

    def drain(self, *, at_once: bool = False) -> None:
        """Claim nothing more. Runs that have not ended after ``drain_timeout`` (or now, with
        ``at_once``) are given back as far as they have come, or end as interrupted if they do not
        resume; then ``run`` returns."""
        self._draining.set()
        if self._duty is None:
            self._early_drains.append(at_once)
        else:
            self._duty.drain(at_once=at_once)

    async def run(self, on_duty: Callable[[], None] | None = None) -> None:
        """Execute runs until drained. Cancelled once, it drains at once; cancelled twice, it stops:
        tasks are killed, and other workers continue the runs, on this machine at once, on others
        when the leases have expired. ``on_duty`` is called when store and broker have answered,
        before the first claim.

        A store that does not answer delays draining by half a minute, besides the time for
        callbacks (``CallbackSettings.flush``), and stopping by about a second."""
        try:
            await run_with_graceful_cancel(self._run(on_duty), lambda: self.drain(at_once=True))
        finally:
            in_order = self._store_answers and times_cancelled() < _CANCELS_TO_STOP
            seconds = (
                _CLOSE_TIMEOUT_S + self._parts.callbacks.flush
                if in_order
                else _CLOSE_AT_ONCE_TIMEOUT_S
            )
            if not await finished_within(seconds, self._parts.close()) and in_order:
                _log.warning("store and broker could not be let go of within %g s", seconds)

    async def _run(self, on_duty: Callable[[], None] | None) -> None:
        await self._parts.open()
        session = await self._parts.session()
        store = session.store
        if not isinstance(store, LeaseStore) or not isinstance(store, Definitions):
            raise not_servable(type(store).__name__)
        touch = InTouch(session.contact)
        claims = Claims(session, store, self._queues, touch)
        preparing = RunPreparation(store, self._compile, self._secrets)
        shift = RunningRuns(session, store, self._parts.around, preparing, self._wake.set)
        room = Capacity(shift, self._pace.concurrency)
        lone = LoneRun(store, self._queues, preparing, shift, InTouch(session.contact))
        self._duty = ClaimLoop(claims, lone, shift, room, touch, self._pace, self._wake)
        hints = await self._hint_listener(claims, shift, room)
        for at_once in self._early_drains:
            self._duty.drain(at_once=at_once)
        try:
            async with (
                self._listening(store, hints, self._duty),
                self._heartbeats(store, claims, shift, InTouch(session.contact)),
                _running(hints),
            ):
                if on_duty is not None:
                    on_duty()
                try:
                    self._store_answers = await self._duty.run()
                finally:  # before any call of the store
                    await shift.stop()
        finally:
            self._duty = None
            await shift.stop()  # runs begun on hints until the listener ended

    def _compile(self, definition: Definition) -> Ready:
        return self._parts.ready.stored(self._parts.file_of(definition), definition)

    async def _hint_listener(
        self, claims: Claims, shift: RunningRuns, room: Capacity
    ) -> HintListener | None:
        broker = await self._parts.broker()
        if broker is None:
            return None
        lease, now = self._parts.timing.lease_duration, self._parts.identity.now
        return HintListener(broker, self._queues, claims, shift, room, self._pace, lease, now)

    @asynccontextmanager
    async def _listening(
        self, store: LeaseStore, hints: HintListener | None, claim_loop: ClaimLoop
    ) -> AsyncIterator[None]:
        """The store wakes every worker of a queue; a broker that answers wakes one."""

        def heard() -> None:
            if hints is None or not hints.hears:
                claim_loop.heard()

        if not isinstance(store, Wakeups):
            yield
            return
        async with store.listen([topic_of_queue(queue) for queue in self._queues], heard):
            yield

    @asynccontextmanager
    async def _heartbeats(
        self, store: LeaseStore, claims: Claims, shift: RunningRuns, touch: InTouch
    ) -> AsyncIterator[None]:
        """Send heartbeats and look for owners that died. The first heartbeat must be answered: a
        worker without a store fails at its start."""
        registry = store if isinstance(store, WorkerRegistry) else None
        if registry is not None:
            await until_answered(
                lambda: touch.asked(registry.heartbeat(self._info(shift), self._listed_for))
            )
        with suppress(TenureError):
            await claims.look_for_the_dead()
        task = asyncio.create_task(self._send_heartbeats(registry, claims, shift, touch))
        try:
            yield
        finally:
            await end(task)
            if registry is not None and not times_cancelled():
                with suppress(TenureError):
                    await finished_within(
                        _SIGN_OFF_TIMEOUT_S, registry.heartbeat(self._info(shift), 0)
                    )

    async def _send_heartbeats(
        self, registry: WorkerRegistry | None, claims: Claims, shift: RunningRuns, touch: InTouch
    ) -> None:
        """A store that takes no heartbeat takes no renewal either (its disk may be full): then no
        expired lease is taken, even if claims that find nothing succeed."""
        failing = False

        async def heartbeat_and_look(info: WorkerInfo) -> bool:
            if registry is not None:
                await registry.heartbeat(info, self._listed_for)
            return await claims.look_for_the_dead()

        while True:
            info = self._info(shift)
            try:
                if await touch.asked(heartbeat_and_look(info)):
                    self._wake.set()
                failing = False
            except Exception as error:  # noqa: BLE001  whatever it is, it must be tried again
                _log.log(logging.DEBUG if failing else logging.WARNING, _NO_HEARTBEAT, error)
                failing = True
            if info.draining:
                await pause(self._look_interval)
            else:  # a worker that drains is to be listed so at once
                await wait_for_event(self._draining, self._look_interval)

    def _info(self, shift: RunningRuns) -> WorkerInfo:
        return WorkerInfo(
            owner_id=self.owner_id,
            queues=self._queues,
            concurrency=self._pace.concurrency,
            running=len(shift),
            draining=self._draining.is_set(),
        )


@asynccontextmanager
async def _running(hints: HintListener | None) -> AsyncIterator[None]:
    if hints is None:
        yield
        return
    task = asyncio.create_task(hints.run())
    try:
        yield
    finally:
        await end(task)


def _problems_of_user(name: str | None) -> list[str]:
    if name is None:
        return []
    if os.geteuid() != 0:
        return [f"task_user {name}: only a worker of root can start tasks as another user"]
    try:
        Account.named(name)
    except KeyError:
        return [f"task_user: this machine has no user {name}"]
    return []


def _problems_of_queues(queues: Sequence[str]) -> list[str]:
    if isinstance(queues, str) or not queues or not all(map(is_queue, queues)):
        return [f"queues must be a list, and each of it {A_QUEUE}"]
    return []


def _problems_of_times(timing: Timing, pace: Pace, hidden: float) -> list[str]:
    """``hidden``: how long a broker hides a hint. Also checked without a broker, as the settings of
    a command are."""
    times = SimpleNamespace(
        lease_duration=timing.lease_duration,
        renew_interval=timing.renew_interval,
        poll_interval=pace.poll_interval,
        visibility_timeout=hidden,
    )
    wrong = broken(_HIDDEN, times, _HIDDEN)
    if wrong:
        del times.visibility_timeout
    return [*wrong, *broken_together(times)]
