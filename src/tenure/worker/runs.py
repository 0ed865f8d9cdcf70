"""The runs that a worker executes (``RunningRuns``), their preparation from the store
(``RunPreparation``), and the worker's options (``Pace``)."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.aio import about, until_answered
from tenure.model.errors import (
    InvalidOptions,
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    RunNotFound,
    StoreUnavailable,
    TenureError,
    VersionConflict,
)
from tenure.model.leases import ClaimedRun, WaitingRun
from tenure.model.snapshot import ErrorInfo, RunSnapshot
from tenure.model.status import TERMINAL_RUN, RunStatus
from tenure.model.update import Fencing, LeaseRequest, RunChange
from tenure.ports.leases import LeaseStore
from tenure.ports.store import Definitions
from tenure.runtime.options import (
    MORE_SECONDS,
    MOST_AT_ONCE,
    MOST_CLAIMED,
    SECONDS,
    Rules,
    broken,
    whole,
)
from tenure.runtime.prepare import Ready
from tenure.runtime.recipe import Definition, decode_definition
from tenure.runtime.resume import unconfirmed
from tenure.runtime.run import RunClaim, RunExecution, Surroundings, Work, stored_work
from tenure.runtime.session import Session
from tenure.runtime.stop import REQUESTED
from tenure.runtime.writer import end_run

_MAX_READY = 64

MakeReady = Callable[[Definition], Ready]


class RunPreparation:
    """Prepares runs from what the store has of them. ``secrets``: this worker's; a run gets those
    that its workflow declares."""

    def __init__(
        self, definitions: Definitions, make_ready: MakeReady, secrets: Mapping[str, str]
    ) -> None:
        self._definitions = definitions
        self._make_ready = make_ready
        self._secrets = secrets
        self._ready: OrderedDict[str, Ready] = OrderedDict()

    async def work(self, found: ClaimedRun | WaitingRun) -> Work:
        """``NotRunnable`` and ``InvalidWorkflow`` if this worker cannot execute it."""
        run = found.snapshot
        ready = await self._ready_for(run.run_id, found.definition_digest)
        declared = ready.source.workflow.secrets
        secrets = {name: self._secrets[name] for name in declared if name in self._secrets}
        return stored_work(ready, run, secrets, by_worker=True)

    async def _ready_for(self, run_id: str, digest: str | None) -> Ready:
        """The compiled workflow, cached: most runs of a queue are of a few workflows."""
        if digest is not None and digest in self._ready:
            self._ready.move_to_end(digest)
            return self._ready[digest]
        text = await until_answered(lambda: self._definitions.get_definition(run_id))
        if text is None:
            raise NotRunnable(run_id, "its store keeps no definition of it: start a new run")
        ready = self._make_ready(decode_definition(text))
        if digest is not None:
            self._ready[digest] = ready
            if len(self._ready) > _MAX_READY:
                self._ready.popitem(last=False)
        return ready


_log = logging.getLogger("tenure.worker")


class RunningRuns:
    """The runs a worker executes. ``ended`` is called whenever one has ended here."""

    def __init__(
        self,
        session: Session,
        store: LeaseStore,
        around: Surroundings,
        preparing: RunPreparation,
        ended: Callable[[], None],
    ) -> None:
        self._session = session
        self._store = store
        self._around = around
        self._preparing = preparing
        self._ended = ended
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._runs: set[RunExecution] = set()
        self._closing = False
        self._given_up: dict[str, float] = {}
        """Runs lost after they began, and the loop time when their leases have expired."""
        self._tried = ""
        """The run that ``take`` was last called for, once that has ended."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._tasks.values()

    def gave_up(self, run_id: str) -> bool:
        """Whether its lease may still belong to this worker in the store: claiming the run would
        renew it, and the takeover would not be counted."""
        return asyncio.get_running_loop().time() < self._given_up.get(run_id, 0.0)

    def has_tried(self, run_id: str) -> bool:
        """Whether ``take`` was tried for it. If the run is queued nevertheless, trying again would
        fail again at once, for ever: it has to be claimed first."""
        return run_id == self._tried

    def begin(self, claim: RunClaim) -> None:
        self._start(claim.run.snapshot.run_id, self._prepare_and_execute(claim))

    def take(self, work: Work) -> None:
        """Execute a queued run that is claimed as it begins, if no other worker is faster."""
        self._start(work.planned.run_id, self._take(work))

    def _start(self, run_id: str, execution: Coroutine[Any, Any, None]) -> None:
        with about(run_id):
            task = asyncio.create_task(execution)
        self._tasks[task] = run_id
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._ended()

    async def over(self) -> None:
        """Returns when all have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def hand_over(self) -> None:
        """End their tasks and give the runs back; those that do not resume end as interrupted."""
        self._closing = True
        for run in self._runs:
            run.stop()

    async def stop(self) -> None:
        """Kill their tasks; the records stay as they are."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.1)

    async def _take(self, work: Work) -> None:
        try:
            await self._execute(work)
        except (LeaseHeld, NotRunnable, RunNotFound, VersionConflict) as refusal:
            _log.debug("another worker was faster: %s", refusal)
        finally:
            self._tried = work.planned.run_id

    async def _prepare_and_execute(self, claim: RunClaim) -> None:
        run_id = claim.run.snapshot.run_id
        try:
            work = await self._preparing.work(claim.run)
        except StoreUnavailable as error:
            _log.warning("run %s is left to others: %s", run_id, error)
            return
        except Exception as error:  # noqa: BLE001  (it would fail in other workers too)
            _log.warning("run %s cannot be executed: %s", run_id, error)
            await self._fail(claim, error)
            return
        await self._execute(replace(work, claim=claim))

    async def _execute(self, work: Work) -> None:
        run_id = work.planned.run_id
        if self._closing:  # it was prepared too late to begin here
            if work.claim is not None:
                await self._release(work.planned, work.claim.run.lease.fencing)
            return
        run = RunExecution(self._session, self._around, work)
        self._runs.add(run)
        try:
            status = await run.execute()
            _log.info("run %s: %s", run_id, status)
            if status not in TERMINAL_RUN:
                if run.cancel_requested:
                    await self._cancel_given_back(run_id)
                await self._hint(work.planned)
        except LeaseLost:
            _log.warning("run %s was lost: nothing of it runs here any more", run_id)
            if run.began:
                self._give_up(run_id)
            else:
                await self._release(work.planned, run.fencing)
        except (LeaseHeld, NotRunnable, RunNotFound, VersionConflict):
            raise
        except Exception as error:  # noqa: BLE001  (it is logged; other runs continue)
            _log.error("run %s\n%s", run_id, run.trace(error))
        finally:
            self._runs.discard(run)

    async def _fail(self, claim: RunClaim, error: Exception) -> None:
        on_committed = self._session.callbacks.told if self._session.callbacks is not None else None
        info = ErrorInfo(kind="definition", message=str(error) or repr(error))
        change = RunChange(
            status=RunStatus.FAILED, message=info.message, error=info, last_error=info
        )
        snapshot, fencing = claim.run.snapshot, claim.run.lease.fencing
        new_id = self._session.identity.new_id
        with suppress(StoreUnavailable):  # then the next owner ends it so
            await end_run(self._session.store, new_id, on_committed, snapshot, fencing, change)

    async def _cancel_given_back(self, run_id: str) -> None:
        """Cancel a run whose cancel request came between the last poll and the commit that gave it
        back: the requester was told that this worker would do it, and there may be no other."""
        new_id, callbacks = self._session.identity.new_id, self._session.callbacks
        request = LeaseRequest(
            owner_id=self._session.identity.owner_id,
            seconds=self._session.lease_seconds,
            claim_id=new_id(),
            expired=False,
        )
        with suppress(TenureError):  # another worker was faster, or finds the request
            claimed = await self._store.claim_run(run_id, request)
            on_committed = callbacks.told if callbacks is not None else None
            change = REQUESTED.change((), unconfirmed(claimed.snapshot))
            fencing = claimed.lease.fencing
            await end_run(
                self._session.store, new_id, on_committed, claimed.snapshot, fencing, change
            )

    def _give_up(self, run_id: str) -> None:
        """Let its lease expire, also if it still belongs to this worker. The next claim then counts
        as a takeover, so that a run that is lost again and again ends (``max_takeovers``); a
        released run would be claimed again without limit. Other workers wait for the rest of the
        lease, no longer than its margin."""
        now = asyncio.get_running_loop().time()
        self._given_up = {run: until for run, until in self._given_up.items() if now < until}
        self._given_up[run_id] = now + self._session.lease_seconds

    async def _release(self, run: RunSnapshot, fencing: Fencing) -> None:
        """Release a run that has not begun here, so that no worker has to wait for its lease."""
        new_id = self._session.identity.new_id
        with suppress(TenureError):
            await self._store.release_lease(run.run_id, fencing, new_id())
            await self._hint(run)

    async def _hint(self, run: RunSnapshot) -> None:
        """Other workers may claim it now."""
        if self._session.hinting is not None:
            await self._session.hinting.hint(run.queue, run.run_id)


class Pace(Struct, frozen=True, kw_only=True):
    """How much a worker does: ``concurrency`` runs at once; times are seconds."""

    concurrency: int = 20
    claim_batch: int = 10
    """Runs that one claim takes, at most."""
    poll_interval: float = 1.0
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        """``InvalidOptions`` names all invalid options."""
        wrong = broken(_RULES, self, _RULES)
        if wrong:
            raise InvalidOptions(wrong)


_RULES: Rules = {
    "concurrency": whole(1, MOST_AT_ONCE),
    "claim_batch": whole(1, MOST_CLAIMED),
    "poll_interval": MORE_SECONDS,
    "drain_timeout": SECONDS,
}
