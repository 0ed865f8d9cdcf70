"""Who is there.

Each worker writes its own row, and forgets those of others that are silent: after an outage that is
everybody, at the same moment. So these are two transactions, and neither waits for a row."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.errors import StoreUnavailable
from tenure.ports.leases import WorkerInfo
from tenure.stores import record_rows
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.patience import PAUSES, pause

_workers = msgspec.json.Decoder(WorkerInfo)


class Workers:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        async with self._connections.session(Purpose.KEEPING) as session:
            seen = record_rows.text(replace(worker, seen_at=await session.now()))
            for wait in PAUSES:
                await pause(wait)
                if await session.all("put_worker", worker.owner_id, seconds, seen):
                    break
            else:
                raise StoreUnavailable(
                    f"worker {worker.owner_id} is locked in {self._connections.address.place} by "
                    "somebody else's transaction; nothing was written, send it again"
                )
            await session.all("forget_silent_workers")

    async def present(self) -> list[WorkerInfo]:
        async with self._connections.session(Purpose.READING) as session:
            found = await session.all("workers")
        return [decode(_workers, body) for (body,) in found]
