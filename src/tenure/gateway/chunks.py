"""Output as the store keeps it: bytes at an offset, written by the run's owner alone."""

from __future__ import annotations

from typing import Any

from tenure.gateway.calls import Answer, Call
from tenure.gateway.reaching import check_holds, check_reaches
from tenure.model.errors import NotSupported
from tenure.model.update import Fencing
from tenure.ports.log_store import LogKey, LogStore
from tenure.wire.chunks import Appended, Chunk, ChunkQuery, NewChunk
from tenure.wire.listings import NoQuery


async def read_chunk(call: Call[ChunkQuery, None]) -> Answer:
    store, asked, run_id = _logs_of(call), call.query, await check_reaches(call)
    found = await store.read(run_id, _key(asked), asked.offset, limit=asked.limit)
    return Answer(value=Chunk(offset=found.offset, size=found.size, data=found.data))


async def append_chunk(call: Call[NoQuery, NewChunk]) -> Answer:
    store, given = _logs_of(call), call.body
    fencing = Fencing(given.owner_id, given.fence)
    run_id = await check_holds(call, fencing)
    size = await store.append(run_id, fencing, _key(given), given.offset, given.data)
    return Answer(value=Appended(size=size))


def _key(of: ChunkQuery | NewChunk) -> LogKey:
    return LogKey(step=of.step, host=of.host, stream=of.stream, item=of.item, attempt=of.attempt)


def _logs_of(call: Call[Any, Any]) -> LogStore:
    if isinstance(call.parts.store, LogStore):
        return call.parts.store
    raise NotSupported(f"{type(call.parts.store).__name__} keeps no full output")
