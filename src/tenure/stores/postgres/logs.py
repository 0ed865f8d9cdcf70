"""Output of tasks, as chunks of bytes.

A chunk is written if its writer still owns the run and the stream ends where the chunk begins, in
one statement; the primary key excludes two that begin at the same place. A repeated chunk is
acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection

from tenure.model.codec import storable
from tenure.model.errors import LeaseLost, RunNotFound, StoreRejected
from tenure.model.update import Fencing
from tenure.ports.store import LogKey, LogName, LogSlice
from tenure.stores.postgres.connection import Session
from tenure.stores.postgres.errors import DATA_ERRORS
from tenure.stores.postgres.pools import Connections, Purpose
from tenure.stores.postgres.rows import can_exist, escaped, must_exist, unescaped

_NO_ITEM = -1
_Stream = tuple[int, str, int, int, str]


class Logs:
    _connections: Connections

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        must_exist(run_id)
        stream = _stream_of(storable(run_id, key))
        async with self._connections.session(Purpose.OUTPUT) as session:
            try:
                return await self._append_chunk(session, run_id, fencing, stream, offset, data)
            except DATA_ERRORS as error:
                raise StoreRejected(run_id, f"output cannot be stored: {error}") from error

    async def _append_chunk(
        self,
        session: Session,
        run_id: str,
        fencing: Fencing,
        stream: _Stream,
        offset: int,
        data: bytes,
    ) -> int:
        row = await session.first(
            "append_log", run_id, fencing.fence, fencing.owner_id, *stream, offset, data
        )
        if row is None:
            raise RunNotFound(run_id)
        seq, fence, owner_id, size, written = row
        if (fence, owner_id) != (fencing.fence, fencing.owner_id):
            raise LeaseLost(run_id, fence=fence, owner_id=owner_id)
        if written:
            return int(size) + len(data)
        if offset == size and not data:
            await session.confirm()
            return int(size)
        known = b""
        if 0 <= offset <= size:  # at its end another call may just have written
            known = await _bytes(session, seq, stream, offset, len(data))
        if not known or not data.startswith(known):
            raise StoreRejected(
                run_id, f"output at {offset} does not continue the {size} bytes kept"
            )
        rest = data[len(known) :]
        if not rest:
            await session.confirm()
            return max(int(size), offset + len(data))
        return await self._append_chunk(session, run_id, fencing, stream, offset + len(known), rest)

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        stream, offset = _stream_of(storable(run_id, key)), max(offset, 0)
        async with self._connections.session(Purpose.READING) as session:
            seq = await _seq_of(session, run_id)
            row = await session.first("log_size", seq, *stream)
            data = await _bytes(session, seq, stream, offset, max(limit, 0)) if row else b""
        size = int(row[0]) if row else 0
        return LogSlice(offset=offset, data=data, size=max(size, offset + len(data) if data else 0))

    async def list_logs(self, run_id: str) -> list[LogKey]:
        async with self._connections.session(Purpose.READING) as session:
            found = await session.all("log_streams", await _seq_of(session, run_id))
        return [
            LogKey(
                step=step,
                host=unescaped(host),
                item=None if item == _NO_ITEM else item,
                attempt=attempt,
                stream=unescaped(stream),
            )
            for step, host, item, attempt, stream in found
        ]

    async def sizes_of(self, names: Collection[LogName]) -> dict[LogName, int]:
        asked = [(run_id, key) for run_id, key in names if can_exist(run_id)]
        streams = [(run_id, *_stream_of(storable(run_id, key))) for run_id, key in asked]
        columns = [[stream[column] for stream in streams] for column in range(6)]
        async with self._connections.session(Purpose.READING) as session:
            found = await session.all("log_sizes", *columns)
        return {asked[place - 1]: int(size) for place, size in found}


def _stream_of(key: LogKey) -> _Stream:
    return (
        key.step,
        escaped(key.host),
        _NO_ITEM if key.item is None else key.item,
        key.attempt,
        escaped(key.stream),
    )


async def _bytes(session: Session, seq: int, stream: _Stream, offset: int, limit: int) -> bytes:
    chunks = await session.all("log_chunks", seq, *stream, offset, offset + limit)
    if not chunks:
        return b""
    start = int(chunks[0][0])
    joined = b"".join(bytes(data) for _, data in chunks)
    return joined[max(offset - start, 0) :][:limit]


async def _seq_of(session: Session, run_id: str) -> int:
    row = await session.first("seq_of_run", must_exist(run_id))
    if row is None:
        raise RunNotFound(run_id)
    return int(row[0])
