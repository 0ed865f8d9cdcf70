"""Ownership of runs: leases, their renewal, proof of life, workers and wake-ups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.leases import ClaimedRun, ClaimRequest, Lease, Purpose, Renewal
from tenure.model.query import Ownership, Page, RunFilter
from tenure.model.snapshot import RunSummary
from tenure.model.update import Fencing, LeaseRequest


@runtime_checkable
class LeaseStore(Protocol):
    """Claims by workers. Without it a store serves embedded runs only: no workers, no takeover.

    *One owner.* At most one owner holds a run's newest fence. A claim raises fence and version and
    writes an event naming the owner; every later write under an older fence is refused.

    *The store's clock* decides expiry, at the instant of the statement. A run with an expired lease
    can be listed, claimed, reconciled and canceled; yet its owner may update and renew until it is
    claimed.

    *Claim, then read.* The snapshot that comes with a claim is read after the claim has
    committed, so that it holds the last write the previous owner got in.
    """

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        """Runs a worker could claim now: highest priority first, then oldest."""
        ...

    async def claim_run(
        self, run_id: str, request: LeaseRequest, purpose: Purpose = Purpose.EXECUTE
    ) -> ClaimedRun:
        """``RunNotFound``; ``LeaseHeld`` with its expiry; otherwise ``NotRunnable``.

        A claim by the present owner under a live lease renews it at the same fence.
        The same ``claim_id`` again returns the run if it is still held under it, renewed.
        """
        ...

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        """Up to ``limit`` runs of the given queues, by priority, then oldest; one in ten claimed
        runs is the oldest, whatever its priority.

        The same ``claim_id`` again returns the runs still held under it, renewed, and claims no
        others: all of them, or ``StoreUnavailable``, since the rest would not be asked for again.
        Rows locked by another process are skipped. A claim that was delayed takes no expired lease
        (``model.leases.in_time``), here as in ``claim_run``.
        """
        ...

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        """Extend each lease to ``seconds`` from now. One answer each, in order.

        Changes neither version nor owner nor fence, and never shortens a lease. Does not wait for
        a run that another process is writing: the answer is ``busy``, and nothing was renewed.
        """
        ...

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        """Give the run back with its status untouched. ``RunNotFound``, ``LeaseLost``.

        Version rises by one. A no-op for a run that its last owner has ended or released already.
        """
        ...


@runtime_checkable
class LeaseKeeping(Protocol):
    """The part of a store that renewing leases needs; same contracts as in ``LeaseStore`` and
    ``RunStateStore``."""

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]: ...

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]: ...


@runtime_checkable
class KeptApart(Protocol):
    """Renewals from another thread. Without it the event loop that drives the runs renews their
    leases, and whatever blocks that loop blocks the renewals."""

    def keeping(self) -> AbstractAsyncContextManager[LeaseKeeping]:
        """Entered, used and left in one event loop of any thread. Its calls work however long the
        loop that uses the store itself is blocked: they share no lock, queue or connection with
        calls that need that loop to finish.
        """
        ...


class Presence(Enum):
    """What is known of an owner's process from the machine it runs on."""

    ALIVE = "alive"
    """The process exists; it may be frozen."""
    ENDING = "ending"
    """The process is gone; the supervisor of its tasks is still ending them."""
    GONE = "gone"
    """The process is gone, and so is everything it started here."""
    UNSEEN = "unseen"
    """Not visible from here: on another machine, or in another container."""


@runtime_checkable
class LiveRuns(Protocol):
    """A store without leases that knows whether a run's process lives (by an OS lock).

    Without it, reconcile must rely on the caller's word that no other process uses the store.
    """

    async def is_live(self, run_id: str) -> bool:
        """Whether some process, this one included, holds the run. ``RunNotFound``."""
        ...


@runtime_checkable
class OwnerListing(Protocol):
    """Owners in one query. Without it a search for lost owners reads every run that is held."""

    async def list_owners(self) -> list[Ownership]:
        """All of them, unordered, as of one moment (``model.query.Ownership``). The cost depends on
        the number of held runs, not on waiting or ended ones."""
        ...


class WorkerInfo(Struct, frozen=True, kw_only=True):
    owner_id: str
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 0
    running: int = 0
    draining: bool = False
    """It claims nothing more, and exits when its runs are done."""
    details: dict[str, Any] = {}
    seen_at: datetime | None = None
    """Stamped by the store."""
    token_id: str | None = None
    """As in ``LeaseRequest``."""


@runtime_checkable
class WorkerRegistry(Protocol):
    """The list of workers, for operators only; ownership never depends on it."""

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        """List this worker for ``seconds`` from now. Zero removes the entry."""
        ...

    async def list_workers(self) -> list[WorkerInfo]:
        """Workers whose last heartbeat still counts, by ``owner_id``."""
        ...


@runtime_checkable
class Wakeups(Protocol):
    """Notifications of changes. Without it every change is found by polling, an interval later.

    Writers never wait for listeners, nor for one another because of them.
    """

    def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        """While entered, ``heard`` is called in the event loop that entered it when one of these
        topics (``model.query.news``) may have news, from any process. The first call says that
        listening has begun, and so does the first one after an interruption: earlier hints may have
        been missed.

        A hint may be lost, may be spurious, and may stand for several. A listener still polls now
        and then, and reads the store to learn what has changed. One hint may reach many listeners:
        each claims only what it has room for.
        """
        ...


@runtime_checkable
class WakeupCheck(Protocol):
    """A test of the notifications. Without it nothing tells whether hints arrive."""

    async def hears_hints(self) -> bool | None:
        """Publish a hint and report whether it is heard. ``None``: listening is turned off.
        May take a few seconds."""
        ...
