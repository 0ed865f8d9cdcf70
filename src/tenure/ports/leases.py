"""Ownership of runs."""

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
    """Without it a store serves embedded runs only: no workers, no takeover.

    *One owner.* At most one owner holds a run's newest fence. Who claims raises fence and version
    and writes an event naming the owner; every later write under an older fence is refused.

    *The store's clock* decides expiry, at the instant of the statement. An expired lease counts
    as none for listing, claiming, reconciling and canceling; yet its owner may go on updating and
    renewing until somebody claims.

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

        Claiming what this very owner holds under a live lease renews it at the same fence.
        The same ``claim_id`` again returns the run if it is still held under it, renewed.
        """
        ...

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        """Up to ``limit`` runs of the given queues, by priority, then oldest; of every ten runs
        claimed one is the oldest, whatever its priority.

        The same ``claim_id`` again returns the runs still held under it, renewed, and claims no
        others: all of them, or ``StoreUnavailable``, for nobody would ask for the rest.
        Never waits for a run somebody else is looking at. Who comes to it late takes no expired
        lease (``model.leasing.in_time``), here as in ``claim_run``.
        """
        ...

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        """Extend each lease to ``seconds`` from now. One answer each, in order.

        Changes neither version nor owner nor fence, and never shortens a lease. Does not wait for
        a run that somebody else is writing: the answer is ``busy``, and nothing was renewed.
        """
        ...

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        """Give the run back with its status untouched. ``RunNotFound``, ``LeaseLost``.

        Version rises by one. A no-op for a run its last owner has ended or released already.
        """
        ...


# Leases kept from beside the event loop that works.


@runtime_checkable
class LeaseKeeping(Protocol):
    """All that whoever keeps leases asks of a store; the duties are those of ``LeaseStore`` and
    ``RunStateStore``."""

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]: ...

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]: ...


@runtime_checkable
class KeptApart(Protocol):
    """Without it leases are renewed by the event loop that drives the runs: whatever holds up that
    loop holds up the renewals."""

    def keeping(self) -> AbstractAsyncContextManager[LeaseKeeping]:
        """Entered, used and left in one event loop of whichever thread. Its calls come through
        however long the loop that uses the store itself is held up, and share no lock, queue or
        connection with calls that only that loop could bring to their end.
        """
        ...


# Proof of life, and of death, beside leases.


class Presence(Enum):
    """What can be told of an owner's process by looking for it."""

    ALIVE = "alive"
    """It is there; whether it moves is another question."""
    ENDING = "ending"
    """It is gone; the supervisor of its tasks is still at work, ending them."""
    GONE = "gone"
    """And so is all that it started here."""
    UNSEEN = "unseen"
    """It may live where we cannot look: on another machine, in another container."""


@runtime_checkable
class LiveRuns(Protocol):
    """A store without leases may still know that a run's process lives (an OS lock).

    Without it, reconcile must rely on the caller's word that no other process uses the store.
    """

    async def is_live(self, run_id: str) -> bool:
        """Whether some process, this one included, holds the run. ``RunNotFound``."""
        ...


# Who has runs.


@runtime_checkable
class OwnerListing(Protocol):
    """Without it whoever looks for owners that are gone reads every run that is held."""

    async def list_owners(self) -> list[Ownership]:
        """All of them, in no order, as of one moment (``model.owning`` says what counts). Costs
        what is held, however many runs wait or have ended."""
        ...


# Who is there.


class WorkerInfo(Struct, frozen=True, kw_only=True):
    owner_id: str
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 0
    running: int = 0
    draining: bool = False
    """It takes nothing more, and goes when what it has is done."""
    details: dict[str, Any] = {}
    seen_at: datetime | None = None
    """Stamped by the store."""
    token_id: str | None = None
    """As in ``LeaseRequest``."""


@runtime_checkable
class WorkerRegistry(Protocol):
    """For people only; ownership never depends on it."""

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        """Be listed for ``seconds`` from now. Zero takes the entry away."""
        ...

    async def list_workers(self) -> list[WorkerInfo]:
        """Those whose last heartbeat still counts, by ``owner_id``."""
        ...


# Being told that there may be something to do.


@runtime_checkable
class Wakeups(Protocol):
    """Without it everything is found by looking, an interval later.

    Writers never wait for listeners, nor for one another on their account.
    """

    def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        """While it is entered ``heard`` is called, in the event loop that entered it, when one of
        these topics (``model.wakeups``) may have news, whichever process they come from. The first
        call says that listening has begun, and so does the next after an interruption: what came
        before may have been missed.

        A hint may be lost, may come for nothing, and may stand for many: whoever listens still
        looks by himself now and then, and at the store to learn what there is. Many may hear the
        same one: who then claims, claims only what he has room for.
        """
        ...


@runtime_checkable
class WakeupCheck(Protocol):
    """Without it nobody can tell whether hints arrive: everything works, only later."""

    async def hears_hints(self) -> bool | None:
        """Whether one that is told now is heard, by a try of its own. ``None``: it was told not to
        listen. May take a few seconds."""
        ...
