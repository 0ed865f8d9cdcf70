"""Who is there."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.ports.workers import WorkerInfo
from tenure.stores import record_rows
from tenure.stores.postgres.connections import Connections, Purpose

_workers = msgspec.json.Decoder(WorkerInfo)


class Workers:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        async with self._connections.session(Purpose.KEEPING) as session:
            seen = record_rows.text(replace(worker, seen_at=await session.now()))
            await session.together(
                ("put_worker", worker.owner_id, seconds, seen), ("forget_silent_workers",)
            )

    async def present(self) -> list[WorkerInfo]:
        async with self._connections.session(Purpose.READING) as session:
            found = await session.all("workers")
        return [decode(_workers, body) for (body,) in found]
