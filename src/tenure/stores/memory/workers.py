"""Who is there."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.codec import copied
from tenure.ports.leases import WorkerInfo
from tenure.stores.lease_clock import LeaseEnd
from tenure.stores.memory.state import MemoryState


class MemoryWorkers:
    """``WorkerRegistry``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._workers: dict[str, tuple[WorkerInfo, LeaseEnd]] = {}

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        clock = self._state.clock
        with self._state.lock:
            seen = replace(copied(worker), seen_at=clock.now())
            self._workers[worker.owner_id] = (seen, clock.until(seconds))
            self._workers = {
                owner: entry for owner, entry in self._workers.items() if clock.is_live(entry[1])
            }

    async def list_workers(self) -> list[WorkerInfo]:
        with self._state.lock:
            return [
                copied(worker)
                for _, (worker, until) in sorted(self._workers.items())
                if self._state.clock.is_live(until)
            ]
