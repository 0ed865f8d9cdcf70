"""The store that lives and dies with its process: for tests, trying out, and ``tracking`` off.

It is a real store, not a fake: all protocols, all rules, the whole contract suite. One lock
guards it; every method does its work in one piece under it, so it may be used from several
threads and event loops.
"""

from __future__ import annotations

from typing import Self

from tenure.ports.environment import Clock
from tenure.stores.memory.beginnings import MemoryBeginnings
from tenure.stores.memory.changes import MemoryChanges
from tenure.stores.memory.counting import MemoryCensus
from tenure.stores.memory.leases import MemoryLeases
from tenure.stores.memory.logs import MemoryLogs
from tenure.stores.memory.outbox import MemoryOutbox
from tenure.stores.memory.retention import MemoryRetention
from tenure.stores.memory.runs import MemoryRuns
from tenure.stores.memory.state import MemoryState
from tenure.stores.memory.tokens import MemoryTokens
from tenure.stores.memory.wakeups import MemoryWakeups
from tenure.stores.memory.workers import MemoryWorkers
from tenure.system import SystemClock


class InMemoryStore(
    MemoryRuns,
    MemoryChanges,
    MemoryLeases,
    MemoryBeginnings,
    MemoryOutbox,
    MemoryLogs,
    MemoryWorkers,
    MemoryCensus,
    MemoryTokens,
    MemoryWakeups,
    MemoryRetention,
):
    """Every store protocol but ``Upkeep``, kept in dictionaries."""

    durable = False

    def __init__(self, clock: Clock | None = None) -> None:
        state = MemoryState(clock or SystemClock())
        MemoryRuns.__init__(self, state)
        MemoryChanges.__init__(self, state)
        MemoryLeases.__init__(self, state)
        MemoryBeginnings.__init__(self, state)
        MemoryOutbox.__init__(self, state)
        MemoryLogs.__init__(self, state)
        MemoryWorkers.__init__(self, state)
        MemoryCensus.__init__(self, state)
        MemoryTokens.__init__(self, state)
        MemoryWakeups.__init__(self, state)
        MemoryRetention.__init__(self, state)

    async def close(self) -> None:
        """Nothing to let go of; here so that every store can be closed alike."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()


__all__ = ["InMemoryStore"]
