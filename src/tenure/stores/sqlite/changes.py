"""All histories as one: commits are made one after another, so the numbers of journal rows are an
order in which nothing can turn up behind whoever has read on. Runs in a reader's thread."""

from __future__ import annotations

import apsw
import msgspec

from tenure.model.codec import decode
from tenure.model.query import encode_cursor
from tenure.model.update import Event, FeedPage, RecordedEvent, record
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.statements import Statements

_events = msgspec.json.Decoder(tuple[Event, ...])


class ChangeFeeding:
    def __init__(self, connection: apsw.Connection) -> None:
        self._sql = Statements(connection)

    def after(self, number: int, limit: int) -> FeedPage:
        events: list[RecordedEvent] = []
        for row in self._sql.all("changes_after", number, limit):
            number, run_id, version, at, fence, text = row
            said: tuple[Event, ...] = decode(_events, text)
            moment = rows.moment(at)
            events += (
                record(event, run_id=run_id, version=version, seq=seq, at=moment, fence=fence)
                for seq, event in enumerate(said)
            )
        return FeedPage(events=tuple(events), cursor=encode_cursor("changes", number))

    def newest(self) -> str:
        return encode_cursor("changes", self._sql.one("newest_change")[0])
