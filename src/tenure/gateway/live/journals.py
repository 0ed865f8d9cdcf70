"""What happens to one run, for all who look at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakSet

from tenure.gateway.live.frames import Frame, message
from tenure.gateway.live.watched import CHUNK, Part, Watched
from tenure.model.events import Position, RecordedEvent
from tenure.model.snapshot import RunSummary
from tenure.model.status import TERMINAL_RUN
from tenure.ports.event_log import EventLog
from tenure.wire.full import shown_as
from tenure.wire.live import RunEnded

_PAGE = 200
_WHOLE_VERSION = 1 << 31


class Listener(Protocol):
    def hears(self, event: RecordedEvent) -> None: ...


def all_of_version(version: int) -> Position:
    """Behind it comes what a later version says."""
    return Position(version, _WHOLE_VERSION)


class RunJournal(Watched[Position]):
    """Over with the event that ends the run, and whatever was noted on it until then; a run that
    has ended, with all there is."""

    def __init__(self, log: EventLog, run: RunSummary, after: Position) -> None:
        super().__init__(run.run_id, min(after, all_of_version(run.version)))
        self.listeners: WeakSet[Listener] = WeakSet()
        self._log = log
        self._run_id = run.run_id
        self._end = str(run.status) if run.ended else None

    async def look(self) -> None:
        size = self.size
        while True:
            events = await self._events(self.place)
            self._hear(events)
            self.publish([Frame(event.position, _told(event)) for event in events])
            if len(events) < _PAGE:
                break
        self.size_seen = size
        if self._end is not None:
            self.end()

    async def read(self, behind: Position) -> Part[Position]:
        data = b""
        for event in await self._events(behind):
            data += _told(event)
            behind = event.position
            if len(data) >= CHUNK:
                break
        return Part(behind, data)

    def last_words(self) -> bytes:
        return message(RunEnded(run_id=self._run_id, status=str(self._end)), kind="end")

    async def _events(self, after: Position) -> list[RecordedEvent]:
        return await self._log.read_events(self._run_id, after, limit=_PAGE)

    def _hear(self, events: Sequence[RecordedEvent]) -> None:
        for event in events:
            if event.kind == "run" and event.status in TERMINAL_RUN:
                self._end = event.status
            for listener in self.listeners:
                listener.hears(event)


def _told(event: RecordedEvent) -> bytes:
    return message(shown_as(RecordedEvent, event), place=event.position)
