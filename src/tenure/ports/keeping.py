"""Leases kept from beside the event loop that works."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from tenure.model.leasing import Lease, Renewal
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSummary


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
