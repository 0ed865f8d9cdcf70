"""Many writes in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tenure.model.errors import TenureError
from tenure.model.update import Receipt, Write


@runtime_checkable
class BatchUpdates(Protocol):
    """Without it, the combiner sends updates one by one."""

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        """Apply creations and updates of different runs; one outcome each, in order.

        At most one write per run: a second one for the same run is answered ``StoreRejected``.
        One refused or malformed write never harms another; its error is returned in its place,
        exactly the error the single call would raise. All accepted ones are durable when the call
        returns. Raises only ``StoreUnavailable``, after which any of them may have been applied:
        send the same writes again.
        """
        ...


@runtime_checkable
class ParallelBatches(BatchUpdates, Protocol):
    """Without it, one batch waits for the other."""

    @property
    def batches_at_once(self) -> int:
        """So many calls of ``update_runs`` can be under way without one waiting for another."""
        ...
