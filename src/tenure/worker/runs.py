"""The runs that a worker executes now."""

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

# A run made ready to be executed: from what the store keeps of it, and nothing else.
#
# What a hint says of a run is not believed, unless the hint brought its record along under the
# store's seal: that is the store's own word (``at_hand``).


_MOST = 64

MakeReady = Callable[[Definition], Ready]


class RunPreparation:
    """``secrets`` are this worker's: a run gets those that its workflow declares."""

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
        return self._work(await self._ready_for(run.run_id, found.definition_digest), run)

    def at_hand(self, found: WaitingRun) -> Work | None:
        """As ``work``, if what it takes is known; nobody is asked."""
        ready = self._known(found.definition_digest)
        return None if ready is None else self._work(ready, found.snapshot)

    def _work(self, ready: Ready, run: RunSnapshot) -> Work:
        declared = ready.source.workflow.secrets
        secrets = {name: self._secrets[name] for name in declared if name in self._secrets}
        return stored_work(ready, run, secrets, by_worker=True)

    def _known(self, digest: str | None) -> Ready | None:
        ready = self._ready.get(digest) if digest is not None else None
        if ready is not None:
            self._ready.move_to_end(digest or "")
        return ready

    async def _ready_for(self, run_id: str, digest: str | None) -> Ready:
        """Most runs of a queue are runs of a few workflows."""
        known = self._known(digest)
        if known is not None:
            return known
        text = await until_answered(lambda: self._definitions.get_definition(run_id))
        if text is None:
            raise NotRunnable(run_id, "its store keeps no definition of it: start a new run")
        ready = self._make_ready(decode_definition(text))
        if digest is not None:
            self._ready[digest] = ready
            if len(self._ready) > _MOST:
                self._ready.popitem(last=False)
        return ready


_log = logging.getLogger("tenure.worker")


class RunningRuns:
    """``ended`` is called whenever one of them has come to its end here."""

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
        """Runs that were lost after they began, and the loop's time when their leases are over."""
        self._tried = ""
        """The run that was to be claimed as it began, and is no longer about to."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._tasks.values()

    def gave_up(self, run_id: str) -> bool:
        """Its lease may still be ours in the store, which would renew it if we claimed the run: it
        would be done again, and nobody would count that."""
        return asyncio.get_running_loop().time() < self._given_up.get(run_id, 0.0)

    def has_tried(self, run_id: str) -> bool:
        """To claim it as it begins. If it waits all the same, that would fail again, at once and
        for as long as anybody looks: it is to be claimed, and whoever has it ends it if need be."""
        return run_id == self._tried

    def begin(self, claim: RunClaim) -> None:
        self._start(claim.run.snapshot.run_id, self._prepare_and_execute(claim))

    def take(self, work: Work) -> None:
        """A run that waits, and is claimed when it begins; perhaps by somebody else."""
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
        """Their tasks are ended, and others go on with them; with those that do not resume nobody
        does."""
        self._closing = True
        for run in self._runs:
            run.stop()

    async def stop(self) -> None:
        """Their tasks are killed; the record stays as it is."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.1)

    async def _take(self, work: Work) -> None:
        try:
            await self._execute(work)
        except (LeaseHeld, NotRunnable, RunNotFound, VersionConflict) as refusal:
            _log.debug("somebody else was faster: %s", refusal)
        finally:
            self._tried = work.planned.run_id

    async def _prepare_and_execute(self, claim: RunClaim) -> None:
        run_id = claim.run.snapshot.run_id
        try:
            work = await self._preparing.work(claim.run)
        except StoreUnavailable as error:
            _log.warning("run %s is left to others: %s", run_id, error)
            return
        except Exception as error:  # noqa: BLE001  (others would fare no better with it)
            _log.warning("run %s cannot be executed: %s", run_id, error)
            await self._fail(claim, error)
            return
        await self._execute(replace(work, claim=claim))

    async def _execute(self, work: Work) -> None:
        run_id = work.planned.run_id
        if self._closing:  # it was made ready too late to begin here
            if work.claim is not None:
                await self._let_go(work.planned, work.claim.run.lease.fencing)
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
                await self._let_go(work.planned, run.fencing)
        except (LeaseHeld, NotRunnable, RunNotFound, VersionConflict):
            raise
        except Exception as error:  # noqa: BLE001  (the log has it; others go on)
            _log.error("run %s\n%s", run_id, run.trace(error))
        finally:
            self._runs.discard(run)

    async def _fail(self, claim: RunClaim, error: Exception) -> None:
        told = self._session.callbacks.told if self._session.callbacks is not None else None
        info = ErrorInfo(kind="definition", message=str(error) or repr(error))
        change = RunChange(
            status=RunStatus.FAILED, message=info.message, error=info, last_error=info
        )
        snapshot, fencing = claim.run.snapshot, claim.run.lease.fencing
        new_id = self._session.identity.new_id
        with suppress(StoreUnavailable):  # then whoever claims it next says so
            await end_run(self._session.store, new_id, told, snapshot, fencing, change)

    async def _cancel_given_back(self, run_id: str) -> None:
        """The request came between our last look and the commit that gave the run back. Who made it
        was told that we would see to it; perhaps no other worker comes."""
        new_id, callbacks = self._session.identity.new_id, self._session.callbacks
        request = LeaseRequest(
            owner_id=self._session.identity.owner_id,
            seconds=self._session.lease_seconds,
            claim_id=new_id(),
            expired=False,
        )
        with suppress(TenureError):  # somebody else was faster, or will find it so
            claimed = await self._store.claim_run(run_id, request)
            told = callbacks.told if callbacks is not None else None
            change = REQUESTED.change((), unconfirmed(claimed.snapshot))
            fencing = claimed.lease.fencing
            await end_run(self._session.store, new_id, told, claimed.snapshot, fencing, change)

    def _give_up(self, run_id: str) -> None:
        """Its lease is left to end, also if it is still ours. Then whoever claims it next takes it
        over, and a run that does this to one worker after another, or to the same one again and
        again, is left to people (``max_takeovers``). One that is released is simply picked up. Its
        price is that others wait for the rest of the lease: no longer than the margin."""
        now = asyncio.get_running_loop().time()
        self._given_up = {run: until for run, until in self._given_up.items() if now < until}
        self._given_up[run_id] = now + self._session.lease_seconds

    async def _let_go(self, run: RunSnapshot, fencing: Fencing) -> None:
        """Nothing of it has begun here: if it is still ours nobody needs to wait for the lease to
        end."""
        new_id = self._session.identity.new_id
        with suppress(TenureError):
            await self._store.release_lease(run.run_id, fencing, new_id())
            await self._hint(run)

    async def _hint(self, run: RunSnapshot) -> None:
        """Others may have it from now on."""
        if self._session.hinting is not None:
            await self._session.hinting.hint(run.queue, run.run_id)


# How much a worker takes on, and how often it looks.


class Pace(Struct, frozen=True, kw_only=True):
    """``concurrency`` is how many runs at once; the rest is seconds."""

    concurrency: int = 20
    claim_batch: int = 10
    """Runs that one claim takes, at most."""
    poll_interval: float = 1.0
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        """``InvalidOptions`` names everything that cannot work."""
        wrong = broken(_RULES, self, _RULES)
        if wrong:
            raise InvalidOptions(wrong)


_RULES: Rules = {
    "concurrency": whole(1, MOST_AT_ONCE),
    "claim_batch": whole(1, MOST_CLAIMED),
    "poll_interval": MORE_SECONDS,
    "drain_timeout": SECONDS,
}
