"""All histories as one, in an order in which nothing can turn up behind whoever has read on.

Commits become visible in another order than they began in, so no running number will do. Each row
of the journal carries the id of the transaction that wrote it or, if that is higher, the one its
run's version before it carries. Below the oldest transaction still at work nothing can be added any
more: so far the feed is read.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from tenure.model.codec import decode
from tenure.model.query import bounded_limit, decode_cursor, encode_cursor
from tenure.model.update import Event, FeedPage, RecordedEvent, record
from tenure.stores.postgres.connections import Connections, Purpose

_rows = msgspec.json.Decoder(tuple[int, int, int, datetime, int, tuple[Event, ...], str])


class ChangeFeeding:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def after(self, cursor: str | None, limit: int) -> FeedPage:
        transaction, seq, version = decode_cursor("changes", cursor, 3) if cursor else (0, 0, 0)
        async with self._connections.session(Purpose.READING) as session:
            *_, found, _ = await session.together(
                ("begin",),
                ("carefully",),
                ("changes_after", str(transaction), seq, version, bounded_limit(limit)),
                ("commit",),
            )
        events: list[RecordedEvent] = []
        for (text,) in found:
            transaction, seq, version, at, fence, said, run_id = decode(_rows, text)
            events += (
                record(each, run_id=run_id, version=version, seq=number, at=at, fence=fence)
                for number, each in enumerate(said)
            )
        place = encode_cursor("changes", transaction, seq, version)
        return FeedPage(events=tuple(events), cursor=place)

    async def newest(self) -> str:
        async with self._connections.session(Purpose.READING) as session:
            (transaction,) = await session.one("oldest_at_work")
        return encode_cursor("changes", int(transaction), 0, 0)
