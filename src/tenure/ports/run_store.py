"""The one protocol every store must have."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.update import NewRun, Receipt, Update


@runtime_checkable
class RunStateStore(Protocol):
    """Keeps run records, keyed by ``run_id``.

    Duties of every method:

    *Atomic.* A write happens whole (state, journal row, deliveries) or not at all, and is
    durable when the call returns if ``durable`` says so. A reader sees one version, never a mix.

    *Judged by the model.* What a write does is ``model.leasing.create`` and
    ``model.decide.decide``: a store supplies atomicity, its clock, and memory; it decides nothing.

    *Repeatable.* A caller that got ``StoreUnavailable``, or was cancelled while waiting, does not
    know whether its write happened; it sends the same ``update_id`` again and gets the first
    answer. A cancelled call may therefore have been applied, but never half.

    *Independent.* What is returned shares no memory with the store.

    *Errors* are those of ``model.errors``; a driver's exception never leaks.
    """

    durable: bool
    """Whether runs survive this process."""

    async def create_run(self, new: NewRun) -> Receipt:
        """Store a new run at version 1.

        The store stamps all times, sets ``fence`` to 1 and the owner if ``new.lease`` is given
        (0 and no owner otherwise), and keeps ``new.definition``.

        ``InvalidRunId`` or ``StoreRejected`` for values that can never be stored; ``RunExists``
        for a used id, with nothing changed; the first answer if that run was created by this very
        ``update_id``, but ``LeaseLost`` if it was born with a lease that has been lost since.
        """
        ...

    async def update_run(self, update: Update) -> Receipt:
        """Apply a delta. ``RunNotFound``, then the refusals of ``model.judge`` in its order.

        An accepted update raises ``version`` by one and appends one journal row holding its
        ``update_id`` and events. A refused one leaves no trace.
        """
        ...

    async def get_run(self, run_id: str) -> RunSnapshot:
        """The newest snapshot. ``RunNotFound`` rather than an invented one.

        ``owner_lost`` and ``lease_expires_at`` are judged by the store's clock at this moment.
        """
        ...

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        """Summaries, newest first, in pages.

        A run that exists when the first page is read and stays matching is on exactly one page,
        whatever is inserted meanwhile. ``InvalidCursor`` for a cursor made elsewhere.
        """
        ...
