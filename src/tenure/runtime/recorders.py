"""Passes the events of one run to recorders, in the order of its journal, once they are durable.

A task of its own does this: a slow or failing recorder neither delays nor changes the run. Events
written by the owner need no reading. Where another process wrote in between (an operator's request,
approval or annotation), an answer was lost, or the recorders are far behind, the journal is read,
if the store has one.
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

MOST_KEPT = 10_000


class Stretch(NamedTuple):
    """A piece of the journal, from version ``first`` to ``last``."""

    first: int
    last: int
    ours: list[RecordedEvent]
    complete: bool = True
    """``ours`` are all events; else another process wrote too, or there were too many to keep."""
    dropped: int = 0
    """Number of events after ``ours`` that are kept nowhere."""


class EventBacklog:
    """Events that recorders have not received yet, in bounded memory; ``None`` is the end.

    Beyond ``MOST_KEPT`` events only versions are remembered, and the journal is read later. In a
    store without a journal further events are dropped, counted and logged.
    """

    def __init__(self, *, journal: bool) -> None:
        self._journal = journal
        self._waiting: deque[Stretch | None] = deque()
        self._added = asyncio.Event()
        self.events = 0
        """Number of events in memory."""

    def add(self, stretch: Stretch) -> None:
        newest = self._waiting[-1] if self._waiting else None
        if newest is not None and self.events + len(stretch.ours) > MOST_KEPT:
            self._waiting[-1] = self._merged(newest, stretch)
            return
        self.events += len(stretch.ours)
        self._waiting.append(stretch)
        self._added.set()

    def end(self) -> None:
        self._waiting.append(None)
        self._added.set()

    async def next(self) -> Stretch | None:
        while not self._waiting:
            self._added.clear()
            await self._added.wait()
        stretch = self._waiting.popleft()
        if stretch is not None:
            self.events -= len(stretch.ours)
        return stretch

    def _merged(self, newest: Stretch, stretch: Stretch) -> Stretch:
        if not self._journal:
            dropped = newest.dropped + len(stretch.ours)
            return newest._replace(last=stretch.last, dropped=dropped)
        self.events -= len(newest.ours)
        return Stretch(newest.first, stretch.last, [], complete=False)


T = TypeVar("T")

_log = logging.getLogger("tenure.runtime")


class RecorderQueue:
    """The recorders of one run, from when it begins in this process."""

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
        """The last version that was queued for the recorders."""
        self._listeners: list[OutputRecorder] = []
        self.wants_output = False
        self._task: asyncio.Task[None] | None = None
        if not recorders:
            return
        self._journal = store if isinstance(store, EventLog) else None
        self._backlog = EventBacklog(journal=self._journal is not None)
        self._listeners = [each for each in recorders if isinstance(each, OutputRecorder)]
        self.wants_output = bool(self._listeners)
        self._task = asyncio.create_task(self._run())

    def join(self, version: int) -> None:
        """Start after this version."""
        self._version = version

    def hear(self, events: tuple[Event, ...], receipt: Receipt, *, repeated: bool = False) -> None:
        """Queue durable events. ``repeated``: the receipt answers a repeated write, and its time is
        not that of the events."""
        if self._task is None or receipt.updated_at is None:
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
        self._backlog.add(Stretch(first, receipt.version, ours, complete))

    def output(self, chunk: OutputChunk) -> None:
        for listener in self._listeners:
            self._call_safely(listener.output, chunk)

    async def leave(self, seconds: float) -> None:
        """Wait at most ``seconds`` until the recorders have received all events."""
        if self._task is None:
            return
        self._backlog.end()
        _, late = await asyncio.wait([self._task], timeout=seconds)
        for task in late:
            _log.warning(
                "recorders are still busy %.1f s after the run ended: at least %d events are not "
                "passed to them",
                seconds,
                self._backlog.events,
            )
            task.cancel()

    async def _run(self) -> None:
        stretch = await self._backlog.next()
        if stretch is not None:  # the run was created
            for recorder in self._recorders:
                if isinstance(recorder, RunBeginning):
                    self._call_safely(recorder.begin, self._planned)
        while stretch is not None:
            async for event in self._events_of(stretch):
                await self._record(event)
            if stretch.dropped:
                _log.warning(
                    "run %s: recorders are too slow and the store has no journal: %d events up to "
                    "version %d are not passed to them",
                    self._planned.run_id,
                    stretch.dropped,
                    stretch.last,
                )
            stretch = await self._backlog.next()

    async def _events_of(self, stretch: Stretch) -> AsyncIterator[RecordedEvent]:
        reached = Position(stretch.first)
        if not stretch.complete and self._journal is not None:
            try:
                async for event in _read(
                    self._journal, self._planned.run_id, reached, stretch.last
                ):
                    reached = event.position
                    yield event
            except Exception as error:  # noqa: BLE001  an integrator's store may raise anything
                _log.warning(
                    "run %s: cannot read what was written up to version %d; recorders miss some of "
                    "it: %s",
                    self._planned.run_id,
                    stretch.last,
                    error,
                )
            else:
                return
        for event in stretch.ours:
            if event.position > reached:
                yield event

    async def _record(self, event: RecordedEvent) -> None:
        for recorder in self._recorders:
            try:
                await recorder.record(event)
            except Exception:  # noqa: BLE001  a recorder never changes the run
                _log.exception("recorder %r failed on %s", recorder, event.type)

    @staticmethod
    def _call_safely(call: Callable[[T], None], value: T) -> None:
        try:
            call(value)
        except Exception:  # noqa: BLE001
            _log.exception("recorder failed in %r", call)


async def _read(
    journal: EventLog, run_id: str, after: Position, last: int
) -> AsyncIterator[RecordedEvent]:
    """Events after ``after``, up to version ``last``."""
    while True:
        page = await until_answered(partial(journal.read_events, run_id, after))
        for event in page:
            if event.version <= last:
                yield event
        if not page or page[-1].version > last:
            return
        after = page[-1].position
