"""Output of tasks."""

from __future__ import annotations

from collections.abc import Collection

from tenure.model.codec import storable
from tenure.model.errors import LeaseLost, StoreRejected
from tenure.model.leases import holds
from tenure.model.update import Fencing
from tenure.ports.store import LogKey, LogName, LogSlice
from tenure.stores.memory.state import MemoryState


class MemoryLogs:
    """``LogStore``, ``LogListing`` and ``LogSizes``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        key = storable(run_id, key)
        with self._state.lock:
            stored = self._state.find(run_id)
            run = stored.snapshot
            if not holds(run, fencing):
                raise LeaseLost(run_id, fence=run.fence, owner_id=run.owner_id)
            stream = stored.output.setdefault(key, bytearray())
            known = bytes(stream[offset : offset + len(data)])
            if not 0 <= offset <= len(stream) or not data.startswith(known):
                raise StoreRejected(run_id, f"output at {offset} does not continue {len(stream)}")
            stream += data[len(known) :]
            return len(stream)

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        with self._state.lock:
            stream = self._state.find(run_id).output.get(key, bytearray())
            offset = max(offset, 0)
            data = bytes(stream[offset : offset + max(limit, 0)])
            return LogSlice(offset=offset, data=data, size=len(stream))

    async def list_logs(self, run_id: str) -> list[LogKey]:
        with self._state.lock:
            output = self._state.find(run_id).output
            return sorted((key for key, stream in output.items() if stream), key=_order)

    async def sizes_of(self, names: Collection[LogName]) -> dict[LogName, int]:
        with self._state.lock:
            runs = self._state.runs
            return {
                (run_id, key): len(runs[run_id].output.get(key, b""))
                for run_id, key in names
                if run_id in runs
            }


def _order(key: LogKey) -> tuple[int, str, int, int, str]:
    return key.step, key.host, -1 if key.item is None else key.item, key.attempt, key.stream
