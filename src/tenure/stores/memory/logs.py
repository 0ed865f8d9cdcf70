"""Output of tasks."""

from __future__ import annotations

from tenure.model.codec import storable
from tenure.model.errors import LeaseLost, StoreRejected
from tenure.model.leasing import holds
from tenure.model.update import Fencing
from tenure.ports.log_store import LogKey, LogSlice
from tenure.stores.memory.state import MemoryState


class MemoryLogs:
    """``LogStore``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._streams: dict[tuple[str, LogKey], bytearray] = {}

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        key = storable(run_id, key)
        with self._state.lock:
            run = self._state.find(run_id).snapshot
            if not holds(run, fencing):
                raise LeaseLost(run_id, fence=run.fence, owner_id=run.owner_id)
            stream = self._streams.setdefault((run_id, key), bytearray())
            known = bytes(stream[offset : offset + len(data)])
            if not 0 <= offset <= len(stream) or not data.startswith(known):
                raise StoreRejected(run_id, f"output at {offset} does not continue {len(stream)}")
            stream += data[len(known) :]
            return len(stream)

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        with self._state.lock:
            self._state.find(run_id)
            stream = self._streams.get((run_id, key), bytearray())
            offset = max(offset, 0)
            data = bytes(stream[offset : offset + max(limit, 0)])
            return LogSlice(offset=offset, data=data, size=len(stream))
