"""Whoever looks on: the recorders.

They get the events of one run in the order of its journal, each after it is durable, from a task of
their own: neither a slow nor a failing one holds up or changes the run. What its owner writes needs
no reading. Where somebody else wrote in between (an operator's request, approval or annotation),
or an answer was lost, the journal itself is asked, if the store has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from tenure.model.events import Event, Position, RecordedEvent, record
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Receipt
from tenure.ports.event_log import EventLog
from tenure.ports.recorder import OutputChunk, OutputRecorder, Recorder, RunBeginning
from tenure.ports.run_store import RunStateStore
from tenure.runtime.patience import surely

T = TypeVar("T")

_log = logging.getLogger("tenure.runtime")


class _Stretch(NamedTuple):
    """A piece of the journal: what ``ours`` are, or more of it if somebody else wrote too."""

    ours: list[RecordedEvent]
    journal: EventLog | None = None
    """To be asked, rather than ourselves, for everything between these versions."""
    first: int = 0
    last: int = 0


class Audience:
    """The onlookers of one run, which begins here."""

    def __init__(
        self,
        recorders: Sequence[Recorder],
        planned: RunSnapshot,
        store: RunStateStore,
    ) -> None:
        self._recorders = recorders
        self._planned = planned
        self._store = store
        self._version = 0
        """Up to which they have been told, or will be."""
        self._listeners: list[OutputRecorder] = []
        self._telling: asyncio.Task[None] | None = None
        if not recorders:
            return
        self._heard: asyncio.Queue[_Stretch | None] = asyncio.Queue()
        self._listeners = [each for each in recorders if isinstance(each, OutputRecorder)]
        self._telling = asyncio.create_task(self._tell())

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
        if repeated or first < receipt.version:
            journal = self._store if isinstance(self._store, EventLog) else None
            told = _Stretch(ours, journal, first, receipt.version)
        else:
            told = _Stretch(ours)
        self._heard.put_nowait(told)

    @property
    def wants_output(self) -> bool:
        return bool(self._listeners)

    def output(self, chunk: OutputChunk) -> None:
        for listener in self._listeners:
            self._quietly(listener.output, chunk)

    async def leave(self, patience: float) -> None:
        """Let them finish what they were told, for ``patience`` seconds at most."""
        if self._telling is None:
            return
        self._heard.put_nowait(None)
        _, late = await asyncio.wait([self._telling], timeout=patience)
        for task in late:
            _log.warning(
                "recorders are still busy %.1f s after the run ended: at least %d events are not "
                "told",
                patience,
                self._heard.qsize(),
            )
            task.cancel()

    async def _tell(self) -> None:
        told = await self._heard.get()
        if told is not None:  # it was born
            for recorder in self._recorders:
                if isinstance(recorder, RunBeginning):
                    self._quietly(recorder.begin, self._planned)
        while told is not None:
            for event in await self._events_of(told):
                await self._tell_all(event)
            told = await self._heard.get()

    async def _events_of(self, told: _Stretch) -> list[RecordedEvent]:
        if told.journal is None:
            return told.ours
        try:
            return await _read(told.journal, self._planned.run_id, told.first, told.last)
        except Exception as error:  # noqa: BLE001  a foreign store's driver may raise anything
            _log.warning(
                "run %s: cannot read what others wrote up to version %d; recorders miss it: %s",
                self._planned.run_id,
                told.last,
                error,
            )
            return told.ours

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


async def _read(journal: EventLog, run_id: str, first: int, last: int) -> list[RecordedEvent]:
    """The events of these versions."""
    found: list[RecordedEvent] = []
    after = Position(first)
    while True:
        page = await surely(partial(journal.read_events, run_id, after))
        found += [event for event in page if event.version <= last]
        if not page or page[-1].version > last:
            return found
        after = page[-1].position
