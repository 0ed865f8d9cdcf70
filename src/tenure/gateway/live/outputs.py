"""What one task prints, for all who look at it."""

from __future__ import annotations

from tenure.gateway.live.frames import Frame, message
from tenure.gateway.live.journals import RunJournal
from tenure.gateway.live.watched import Part, Watched
from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import ENDED_HOST
from tenure.ports.log_store import LogKey, LogSlice, LogStore
from tenure.ports.run_store import RunStateStore
from tenure.wire.live import OutputEnded
from tenure.wire.output import Output
from tenure.wire.text import is_begun, readable

_SLICE = 65536


class TaskOutput(Watched[int]):
    """Over when its task has ended, or its run. Whether they have is asked again whenever the run's
    ``journal`` tells of them; without one, always."""

    def __init__(
        self,
        store: RunStateStore,
        logs: LogStore,
        journal: RunJournal | None,
        run_id: str,
        key: LogKey,
        offset: int,
    ) -> None:
        super().__init__((run_id, key), offset)
        self.journal = journal
        self._store = store
        self._logs = logs
        self._run_id = run_id
        self._key = key
        self._in_doubt = True
        self._ended = False
        if journal is not None:
            journal.listeners.add(self)

    def hears(self, event: RecordedEvent) -> None:
        ours = event.step_index == self._key.step and event.host in (None, self._key.host)
        self._in_doubt |= ours or event.kind == "run"

    @property
    def still(self) -> bool:
        return super().still and not self._in_doubt

    async def look(self) -> None:
        """All a task printed was there before it was said to have ended: so that is asked first."""
        size = self.size
        if self._in_doubt and not self._ended:
            self._in_doubt = self.journal is None
            try:
                self._ended = has_ended(await self._store.get_run(self._run_id), self._key)
            except BaseException:
                self._in_doubt = True
                raise
        while (frame := self._frame(await self._slice(self.place))) is not None:
            self.publish([frame])
        self.size_seen = size
        if self._ended:
            self.end()

    async def read(self, behind: int) -> Part[int]:
        frame = self._frame(await self._slice(behind))
        return Part(behind, b"") if frame is None else Part(frame.place, frame.data)

    def last_words(self) -> bytes:
        said = OutputEnded(run_id=self._run_id, attempt=self._key.attempt, size=self.place)
        return message(said, kind="end")

    async def _slice(self, offset: int) -> LogSlice:
        return await self._logs.read(self._run_id, self._key, offset, limit=_SLICE)

    def _frame(self, found: LogSlice) -> Frame[int] | None:
        if not found.data or (is_begun(found.data) and not self._ended):
            return None
        text, length = readable(found.data)
        end = found.offset + length
        shown = Output(
            offset=found.offset,
            next_offset=end,
            size=found.size,
            attempt=self._key.attempt,
            text=text,
        )
        return Frame(end, message(shown, place=end))


def has_ended(run: RunSnapshot, key: LogKey) -> bool:
    """Whether this attempt will print nothing more."""
    if run.ended:
        return True
    host = run.steps[key.step].hosts[key.host]
    if host.status in ENDED_HOST:
        return True
    if key.item is None:
        return host.attempts > key.attempt
    if key.item >= len(host.items):
        return False
    item = host.items[key.item]
    return item.status in ENDED_HOST or item.attempts > key.attempt
