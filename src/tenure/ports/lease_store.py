"""Ownership of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tenure.model.leasing import ClaimedRun, ClaimRequest, Lease, Purpose, Renewal
from tenure.model.query import Page, RunFilter
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
