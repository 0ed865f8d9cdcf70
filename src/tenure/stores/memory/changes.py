"""All histories as one: the numbers under which their versions were written."""

from __future__ import annotations

from tenure.model.codec import copied
from tenure.model.query import bounded_limit, decode_cursor, encode_cursor
from tenure.model.update import FeedPage, RecordedEvent
from tenure.stores.memory.state import MemoryState


class MemoryChanges:
    """``ChangeFeed``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> FeedPage:
        (number,) = decode_cursor("changes", after, 1) if after else (0,)
        events: list[RecordedEvent] = []
        with self._state.lock:
            left = bounded_limit(limit)
            while number < self._state.newest_change and left:
                number += 1
                row = self._state.changes.get(number)
                if row is not None:
                    events += row.events
                    left -= 1
            told = tuple(copied(event) for event in events)
        return FeedPage(events=told, cursor=encode_cursor("changes", number))

    async def newest_change(self) -> str:
        with self._state.lock:
            return encode_cursor("changes", self._state.newest_change)
