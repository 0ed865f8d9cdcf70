"""Whoever looks on: the recorders.

They get the events of one run in the order of its journal, each after it is durable, from a task of
their own: neither a slow nor a failing one holds up or changes the run. What its owner writes needs
no reading. Where somebody else wrote in between (an operator's request, approval or annotation),
an answer was lost, or they are far behind, the journal itself is asked, if the store has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from tenure.aio import until_answered
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Event, Position, Receipt, RecordedEvent, record
from tenure.ports.execution import OutputChunk, OutputRecorder, Recorder, RunBeginning
from tenure.ports.store import EventLog, RunStateStore

# What recorders have not been told yet, in bounded memory.
#
# A recorder that is slow, or hangs, must neither hold up the run nor let it eat the machine. Beyond
# ``MOST_KEPT`` events only the versions are remembered: the journal has the rest, and is read when
# the recorder comes to it. A store without a journal has no second copy: there they are dropped,
# counted, and the log says so.


MOST_KEPT = 10_000


class Stretch(NamedTuple):
    """A piece of the journal, from version ``first`` to ``last``."""

    first: int
    last: int
    ours: list[RecordedEvent]
    complete: bool = True
    """``ours`` are all there is; else somebody else wrote too, or they were too many to keep."""
    dropped: int = 0
    """Events that stand behind ``ours`` and are kept nowhere."""


class EventBacklog:
    """First in, first out; ``None`` is the end."""

    def __init__(self, *, journal: bool) -> None:
        self._journal = journal
        self._waiting: deque[Stretch | None] = deque()
        self._news = asyncio.Event()
        self.events = 0
        """Kept in memory."""

    def add(self, told: Stretch) -> None:
        newest = self._waiting[-1] if self._waiting else None
        if newest is not None and self.events + len(told.ours) > MOST_KEPT:
            self._waiting[-1] = self._merged(newest, told)
            return
        self.events += len(told.ours)
        self._waiting.append(told)
        self._news.set()

    def end(self) -> None:
        self._waiting.append(None)
        self._news.set()

    async def next(self) -> Stretch | None:
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        told = self._waiting.popleft()
        if told is not None:
            self.events -= len(told.ours)
        return told

    def _merged(self, newest: Stretch, told: Stretch) -> Stretch:
        if not self._journal:
            dropped = newest.dropped + len(told.ours)
            return newest._replace(last=told.last, dropped=dropped)
        self.events -= len(newest.ours)
        return Stretch(newest.first, told.last, [], complete=False)


T = TypeVar("T")

_log = logging.getLogger("tenure.runtime")


class RecorderQueue:
    """The onlookers of one run, from when it begins here; what was before is in the journal."""

    def __init__(
        self,
        recorders: Sequence[Recorder],
        planned: RunSnapshot,
        store: RunStateStore,
    ) -> None:
        self._recorders = recorders
        self._planned = planned
        self._journal: EventLog | None = None
        self._version = 0
        """Up to which they have been told, or will be."""
        self._listeners: list[OutputRecorder] = []
        self.wants_output = False
        self._telling: asyncio.Task[None] | None = None
        if not recorders:
            return
        self._journal = store if isinstance(store, EventLog) else None
        self._heard = EventBacklog(journal=self._journal is not None)
        self._listeners = [each for each in recorders if isinstance(each, OutputRecorder)]
        self.wants_output = bool(self._listeners)
        self._telling = asyncio.create_task(self._tell())

    def join(self, version: int) -> None:
        """Up to there the run is past: they look on from now."""
        self._version = version

    def hear(self, events: tuple[Event, ...], receipt: Receipt, *, repeated: bool = False) -> None:
        """``events`` are durable. ``repeated`` if the answer is not the first: it then tells no
        longer when that was."""
        if self._telling is None or receipt.updated_at is None:
            return
        ours = [
            record(
                event,
                run_id=receipt.run_id,
                version=receipt.version,
                seq=seq,
                at=receipt.updated_at,
                fence=receipt.fence,
            )
            for seq, event in enumerate(events)
        ]
        first, self._version = self._version + 1, receipt.version
        complete = first == receipt.version and not repeated
        self._heard.add(Stretch(first, receipt.version, ours, complete))

    def output(self, chunk: OutputChunk) -> None:
        for listener in self._listeners:
            self._quietly(listener.output, chunk)

    async def leave(self, patience: float) -> None:
        """Let them finish what they were told, for ``patience`` seconds at most."""
        if self._telling is None:
            return
        self._heard.end()
        _, late = await asyncio.wait([self._telling], timeout=patience)
        for task in late:
            _log.warning(
                "recorders are still busy %.1f s after the run ended: at least %d events are not "
                "told",
                patience,
                self._heard.events,
            )
            task.cancel()

    async def _tell(self) -> None:
        told = await self._heard.next()
        if told is not None:  # it was born
            for recorder in self._recorders:
                if isinstance(recorder, RunBeginning):
                    self._quietly(recorder.begin, self._planned)
        while told is not None:
            async for event in self._events_of(told):
                await self._tell_all(event)
            if told.dropped:
                _log.warning(
                    "run %s: recorders are too slow and the store has no journal: %d events up to "
                    "version %d are not told",
                    self._planned.run_id,
                    told.dropped,
                    told.last,
                )
            told = await self._heard.next()

    async def _events_of(self, told: Stretch) -> AsyncIterator[RecordedEvent]:
        reached = Position(told.first)
        if not told.complete and self._journal is not None:
            try:
                async for event in _read(self._journal, self._planned.run_id, reached, told.last):
                    reached = event.position
                    yield event
            except Exception as error:  # noqa: BLE001  a foreign store's driver may raise anything
                _log.warning(
                    "run %s: cannot read what was written up to version %d; recorders miss some of "
                    "it: %s",
                    self._planned.run_id,
                    told.last,
                    error,
                )
            else:
                return
        for event in told.ours:
            if event.position > reached:
                yield event

    async def _tell_all(self, event: RecordedEvent) -> None:
        for recorder in self._recorders:
            try:
                await recorder.record(event)
            except Exception:  # noqa: BLE001  an onlooker never changes the run
                _log.exception("recorder %r failed on %s", recorder, event.type)

    @staticmethod
    def _quietly(call: Callable[[T], None], value: T) -> None:
        try:
            call(value)
        except Exception:  # noqa: BLE001
            _log.exception("recorder failed in %r", call)


async def _read(
    journal: EventLog, run_id: str, after: Position, last: int
) -> AsyncIterator[RecordedEvent]:
    """The events behind ``after``, up to version ``last``."""
    while True:
        page = await until_answered(partial(journal.read_events, run_id, after))
        for event in page:
            if event.version <= last:
                yield event
        if not page or page[-1].version > last:
            return
        after = page[-1].position
