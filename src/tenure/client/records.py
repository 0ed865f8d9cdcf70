"""What belongs to a run besides its state: ``EventLog``, ``Definitions``, ``LogStore``,
``LogListing``."""

from __future__ import annotations

from tenure.client.line import Line, encoded
from tenure.client.refusals import error_of, name_of, problem_in
from tenure.client.runs import known
from tenure.model.events import Position, RecordedEvent
from tenure.model.query import MAX_PAGE
from tenure.model.update import Fencing
from tenure.ports.log_store import LogKey, LogSlice
from tenure.wire.chunks import MOST_BYTES, Appended, Chunk, NewChunk
from tenure.wire.listings import EventPage
from tenure.wire.output import OutputStreams, StoredDefinition

_LARGEST_SEQ = 10**9


class RecordsOverHttp:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        path, events = f"/v1/runs/{known(run_id)}/events", list[RecordedEvent]()
        while len(events) < limit:
            size = min(limit - len(events), MAX_PAGE)
            query = [("limit", str(size)), *_after(events[-1].position if events else after)]
            page = await self._line.ask("GET", path, EventPage, query=query)
            events += page.events
            if len(page.events) < size:
                break
        return events

    async def get_definition(self, run_id: str) -> str | None:
        found = await self.definition(run_id)
        return found.stored if found else None

    async def definition(self, run_id: str) -> StoredDefinition | None:
        reply = await self._line.send("GET", f"/v1/runs/{known(run_id)}/definition")
        if reply.is_good:
            return reply.as_a(StoredDefinition)
        problem = problem_in(reply.status, reply.data)
        if name_of(problem) == "not-found":
            return None
        raise error_of(problem, self._line.address)

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        """What is too much for one request goes in several: each can be sent again."""
        path, place = f"/v1/runs/{known(run_id)}/logs/chunk", offset
        while True:
            piece = data[place - offset : place - offset + MOST_BYTES]
            chunk = NewChunk(
                owner_id=fencing.owner_id,
                fence=fencing.fence,
                step=key.step,
                host=key.host,
                stream=key.stream,
                item=key.item,
                attempt=key.attempt,
                offset=place,
                data=piece,
            )
            answer = await self._line.ask("POST", path, Appended, body=encoded(chunk))
            place += len(piece)
            if place == offset + len(data):
                return answer.size

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        query = [
            ("step", str(key.step)),
            ("host", key.host),
            ("stream", key.stream),
            ("attempt", str(key.attempt)),
            ("offset", str(offset)),
            ("limit", str(min(limit, MOST_BYTES))),
        ]
        if key.item is not None:
            query.append(("item", str(key.item)))
        path = f"/v1/runs/{known(run_id)}/logs/chunk"
        found = await self._line.ask("GET", path, Chunk, query=query)
        return LogSlice(offset=found.offset, data=found.data, size=found.size)

    async def list_logs(self, run_id: str) -> list[LogKey]:
        found = await self._line.ask("GET", f"/v1/runs/{known(run_id)}/logs", OutputStreams)
        return [
            LogKey(
                step=each.step,
                host=each.host,
                stream=each.stream,
                item=each.item,
                attempt=each.attempt,
            )
            for each in found.streams
        ]


def _after(position: Position) -> list[tuple[str, str]]:
    """A place before or behind all events of a version is a version as a whole."""
    version, seq = position
    if seq < 0:
        return [("after", str(version - 1))] if version > 0 else []
    return [("after", str(version) if seq >= _LARGEST_SEQ else str(position))]
